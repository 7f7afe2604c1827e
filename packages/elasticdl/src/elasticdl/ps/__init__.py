"""Parameter servers: they hold the model, and change it by the gradients that workers push.

client       for workers and master: a model that is spread over servers
connection   the client's side of one server
checkpoint   a model on a volume or in S3, by version; `load_model` reads one
__main__     the command line of a server, and the thread that reports new versions to the master
service      the server's side of the protocol; it checks the model that a worker pushes against the one that is there
model        what one server holds of the model, without files and network
placement    which server holds what
part_file    what a server's part of a checkpoint holds
format       tensors in one file
storage      files that are written whole or not at all
messages     between the protocol's messages and tensors
errors       errors of servers and clients
"""

"""From a request on the wire to one operation, and from that operation to the request that moto is given.

received    the request as it arrived
sigv4       its signature
payload     its body, compared with the hash that was signed
operations  the one operation that it is for
questions   that operation in IAM's terms: action, resource and condition keys
outgoing    the request that moto carries out, which can be only that operation
"""

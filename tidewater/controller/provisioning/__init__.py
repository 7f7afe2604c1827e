"""Why no node comes for the pods that no node has room for, in Karpenter's own words.

messages    what is made of all that Karpenter has said of a pod: pure functions
conditions  what the conditions of its objects say: pure functions
event_watch watches its events and objects, while a pod waits
"""

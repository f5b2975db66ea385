"""The protocol: a message and the state of a session in; messages out."""

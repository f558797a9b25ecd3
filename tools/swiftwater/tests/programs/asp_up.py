"""A SIGTRAN peer of a signalling gateway (M3UA, RFC 4666): its ASP Up is acknowledged."""

import socket
import struct

M3UA_PORT = 2905
PPID = struct.pack(">I", 3)
# struct sctp_sndrcvinfo with this protocol identifier.
INFO = bytes(8) + PPID + bytes(20)
SCTP_SNDRCV = 1
ASP_UP = bytes([1, 0, 3, 1, 0, 0, 0, 8])
ASP_UP_ACK = bytes([1, 0, 3, 4])

with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP) as peer:
    peer.connect(("127.0.0.1", M3UA_PORT))
    peer.sendmsg([ASP_UP], [(socket.IPPROTO_SCTP, SCTP_SNDRCV, INFO)])
    while not (answer := peer.recv(4096)).startswith(ASP_UP_ACK):
        assert answer, "it hangs up"

"""pysctp, which brings a libsctp of its own, at both ends and in both styles."""

import socket

import sctp


def one_to_one():
    server = sctp.sctpsocket_tcp(socket.AF_INET)
    server.initparams.max_instreams = 3
    server.initparams.num_ostreams = 3
    server.bind(("127.0.0.1", 0))
    server.listen(3)
    client = sctp.sctpsocket_tcp(socket.AF_INET)
    client.connect(server.getsockname())
    peer, _ = server.accept()
    peer.events.data_io = True
    client.sctp_send(b"hello", ppid=socket.htonl(7), stream=2)
    _, flags, data, info = peer.sctp_recv(1024)
    assert data == b"hello" and info.stream == 2 and flags & sctp.FLAG_EOR, (data, flags)
    assert client.getpaddrs() and peer.getladdrs()
    client.close()
    assert not peer.sctp_recv(1024)[2]
    peer.close()
    server.close()


def one_to_many():
    server = sctp.sctpsocket_udp(socket.AF_INET)
    server.bind(("127.0.0.1", 0))
    server.listen(3)
    server.events.clear()
    server.events.association = True
    client = sctp.sctpsocket_udp(socket.AF_INET)
    client.sctp_send(b"many", to=server.getsockname(), ppid=socket.htonl(9))
    _, flags, _, event = server.sctp_recv(1024)
    assert flags & sctp.FLAG_NOTIFICATION and event.state == sctp.assoc_change.state_COMM_UP, event
    assert server.sctp_recv(1024)[2] == b"many"
    peeled = server.peeloff(event.assoc_id)
    peeled.sctp_send(b"back")
    assert client.sctp_recv(1024)[2] == b"back"
    peeled.close()
    client.close()
    server.close()


one_to_one()
one_to_many()

"""Python's own sockets, at both ends."""

import socket
import threading


def fresh():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)


def echo(listener):
    peer, _ = listener.accept()
    with peer:
        while data := peer.recv(65536):
            peer.sendall(data)


with fresh() as listener, fresh() as client:
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    thread = threading.Thread(target=echo, args=(listener,))
    thread.start()
    # With a time limit Python makes the socket non-blocking and polls.
    client.settimeout(20)
    client.connect(listener.getsockname())
    for size in 1, 1400, 50000:
        client.sendall(b"x" * size)
        assert client.recv(65536) == b"x" * size, size
    client.close()
    thread.join()

"""A server of asyncio with many clients at once: it listens a second time, on a socket that listens already."""

import asyncio
import socket

CLIENTS = 100
ADDRESS = ("127.0.0.1", 6021)


def fresh():
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
    made.setblocking(False)
    return made


async def echo(reader, writer):
    writer.write(await reader.readexactly(5))
    await writer.drain()
    await reader.read()
    writer.close()


async def client(number):
    loop = asyncio.get_running_loop()
    text = b"%05d" % number
    with fresh() as own:
        await loop.sock_connect(own, ADDRESS)
        await loop.sock_sendall(own, text)
        assert await loop.sock_recv(own, 100) == text


async def main():
    listener = fresh()
    listener.bind(ADDRESS)
    listener.listen(1)
    # All have connected before the first is accepted.
    held = [fresh() for _ in range(CLIENTS)]
    server = await asyncio.start_server(echo, sock=listener, backlog=CLIENTS, start_serving=False)
    server._start_serving()
    await asyncio.gather(*(asyncio.get_running_loop().sock_connect(one, ADDRESS) for one in held))
    for one in held:
        one.close()
    await asyncio.gather(*map(client, range(CLIENTS)))
    server.close()


asyncio.run(asyncio.wait_for(main(), 25))

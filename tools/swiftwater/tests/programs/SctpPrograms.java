import com.sun.nio.sctp.*;
import java.io.IOException;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.util.*;

/** Both styles of com.sun.nio.sctp, at both ends. */
class SctpPrograms {
    static final int BYTES = 1 << 17;

    static ByteBuffer text(String text) {
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    /** Notifications are counted by their names. */
    static class Counting extends AbstractNotificationHandler<List<String>> {
        @Override public HandlerResult handleNotification(AssociationChangeNotification n, List<String> seen) {
            seen.add(n.event().toString());
            return HandlerResult.CONTINUE;
        }
        @Override public HandlerResult handleNotification(ShutdownNotification n, List<String> seen) {
            seen.add("SHUTDOWN");
            return HandlerResult.CONTINUE;
        }
    }

    static String receive(SctpChannel channel, ByteBuffer place) throws IOException {
        place.clear();
        MessageInfo info = channel.receive(place, null, null);
        if (info == null || info.bytes() == -1) return null;
        place.flip();
        return info.streamNumber() + ":" + info.payloadProtocolID() + ":" + StandardCharsets.UTF_8.decode(place);
    }

    static void oneToOne() throws Exception {
        SctpServerChannel server = SctpServerChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
        SocketAddress address = server.getAllLocalAddresses().iterator().next();
        Thread echo = new Thread(() -> {
            try (SctpChannel peer = server.accept()) {
                ByteBuffer place = ByteBuffer.allocate(BYTES);
                for (MessageInfo info; (info = peer.receive(place, null, null)) != null && info.bytes() != -1; place.clear()) {
                    place.flip();
                    peer.send(place, MessageInfo.createOutgoing(null, info.streamNumber()).payloadProtocolID(info.payloadProtocolID()));
                }
            } catch (IOException e) {
                throw new RuntimeException(e);
            }
        });
        echo.start();
        SctpChannel client = SctpChannel.open(address, 4, 4);
        check(client.getRemoteAddresses().contains(address), "remote addresses " + client.getRemoteAddresses());
        check(client.association().maxOutboundStreams() == 4, "streams");
        ByteBuffer place = ByteBuffer.allocate(BYTES);
        for (int stream = 0; stream < 4; stream++) {
            client.send(text("hello"), MessageInfo.createOutgoing(null, stream).payloadProtocolID(7));
            String got = receive(client, place);
            check((stream + ":7:hello").equals(got), "got " + got);
        }
        client.shutdown();
        client.close();
        echo.join();
        server.close();
    }

    static void withASelector() throws Exception {
        SctpServerChannel server = SctpServerChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
        SocketAddress address = server.getAllLocalAddresses().iterator().next();
        Selector selector = Selector.open();
        server.configureBlocking(false);
        server.register(selector, SelectionKey.OP_ACCEPT);
        SctpChannel client = SctpChannel.open();
        client.configureBlocking(false);
        client.connect(address);
        client.register(selector, SelectionKey.OP_CONNECT);
        String got = null;
        while (got == null) {
            selector.select();
            for (Iterator<SelectionKey> keys = selector.selectedKeys().iterator(); keys.hasNext();) {
                SelectionKey key = keys.next();
                keys.remove();
                if (key.isAcceptable()) {
                    SctpChannel peer = server.accept();
                    peer.configureBlocking(false);
                    peer.register(selector, SelectionKey.OP_READ);
                } else if (key.isConnectable()) {
                    client.finishConnect();
                    key.interestOps(0);
                    client.send(text("selected"), MessageInfo.createOutgoing(null, 1));
                } else if (key.isReadable()) {
                    got = receive((SctpChannel) key.channel(), ByteBuffer.allocate(BYTES));
                }
            }
        }
        check("1:0:selected".equals(got), "got " + got);
        for (SelectionKey key : selector.keys()) key.channel().close();
        selector.close();
    }

    static void oneToMany() throws Exception {
        SctpMultiChannel server = SctpMultiChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
        SctpMultiChannel client = SctpMultiChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
        SocketAddress address = server.getAllLocalAddresses().iterator().next();
        List<String> seen = new ArrayList<>();
        ByteBuffer place = ByteBuffer.allocate(BYTES);
        client.send(text("many"), MessageInfo.createOutgoing(address, 2).payloadProtocolID(9));
        MessageInfo info = server.receive(place, seen, new Counting());
        check(info.bytes() == 4 && info.streamNumber() == 2 && info.payloadProtocolID() == 9, "info " + info);
        check(seen.equals(List.of("COMM_UP")), "seen " + seen);
        Association association = info.association();
        check(server.associations().contains(association), "associations");
        SctpChannel branched = server.branch(association);
        check(branched.association() != null, "branched");
        branched.send(text("back"), MessageInfo.createOutgoing(null, 0));
        place.clear();
        MessageInfo back = client.receive(place, seen, new Counting());
        check(back.bytes() == 4, "back " + back);
        client.shutdown(client.associations().iterator().next());
        place.clear();
        MessageInfo end = branched.receive(place, seen, new Counting());
        check(end == null || end.bytes() == -1, "end " + end);
        branched.close();
        client.close();
        server.close();
    }

    public static void main(String[] arguments) throws Exception {
        oneToOne();
        System.out.println("one-to-one");
        withASelector();
        System.out.println("selector");
        oneToMany();
        System.out.println("one-to-many");
    }
}

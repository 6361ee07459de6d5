import java.io.BufferedReader;
import java.io.Closeable;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** RocketMQ's gRPC client for Java. Arguments: endpoints, access key and secret key (both may be missing). */
public final class GrpcClients {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private final String[] arguments;
    private final Map<String, Closeable> members = new ConcurrentHashMap<>();
    private final Map<String, List<Object>> inboxes = new ConcurrentHashMap<>();
    private final Map<String, List<MessageView>> received = new ConcurrentHashMap<>();

    private GrpcClients(String[] arguments) {
        this.arguments = arguments;
    }

    public static void main(String[] arguments) throws Exception {
        new GrpcClients(arguments).run();
        System.exit(0);
    }

    private void run() throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Object answer;
            try {
                answer = answer(new Command(line));
            } catch (Throwable error) {
                error.printStackTrace();
                answer = Collections.singletonMap("failed", String.valueOf(error));
            }
            answers.println(Json.of(answer));
        }
    }

    private Object answer(Command command) throws Exception {
        switch (command.verb) {
            case "producer":
                return producer(command);
            case "send":
                return send(command);
            case "transaction":
                return transaction(command);
            case "asked":
                return Collections.singletonMap("asked", inboxes.get(command.text("name")));
            case "recall":
                return Collections.singletonMap("id", ((Producer) members.get(command.text("name")))
                    .recallMessage(command.text("topic"), command.text("handle")).getMessageId().toString());
            case "push":
                return push(command);
            case "await":
                return await(command);
            case "simple":
                return simple(command);
            case "receive":
                return receive(command);
            case "ack":
                consumer(command).ack(kept(command));
                return Collections.emptyMap();
            case "change":
                consumer(command).changeInvisibleDuration(kept(command), millis(command));
                return Collections.emptyMap();
            case "shutdown":
                Closeable made = members.remove(command.text("name"));
                if (made != null) {
                    made.close();
                }
                return Collections.emptyMap();
            default:
                throw new IllegalArgumentException("no verb " + command.verb);
        }
    }

    private ClientConfiguration configuration(Command command) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(arguments[0])
            .enableSsl(command.yes("tls")).setRequestTimeout(Duration.ofSeconds(3));
        if (arguments.length > 2 && !arguments[1].isEmpty()) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(arguments[1], arguments[2]));
        }
        if (command.has("namespace")) {
            builder.setNamespace(command.text("namespace"));
        }
        return builder.build();
    }

    private Object producer(Command command) throws Exception {
        List<Object> asked = Collections.synchronizedList(new ArrayList<>());
        inboxes.put(command.text("name"), asked);
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration(command))
            .setTopics(command.text("topics").split(","));
        if (command.has("checker")) {
            boolean commits = command.text("checker").equals("commit");
            builder.setTransactionChecker(view -> {
                asked.add(hex(view.getBody()));
                return commits ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
            });
        }
        members.put(command.text("name"), builder.build());
        return Collections.emptyMap();
    }

    private Object send(Command command) throws Exception {
        Producer by = (Producer) members.get(command.text("name"));
        List<Object> sent = new ArrayList<>();
        for (String text : command.text("bodies").split(",")) {
            Message message = message(command, bytes(text));
            SendReceipt receipt = command.text("mode", "sync").equals("async")
                ? by.sendAsync(message).get(30, TimeUnit.SECONDS) : by.send(message);
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("id", receipt.getMessageId().toString());
            row.put("recall", String.valueOf(receipt.getRecallHandle()));
            sent.add(row);
        }
        return Collections.singletonMap("sent", sent);
    }

    private Object transaction(Command command) throws Exception {
        Producer by = (Producer) members.get(command.text("name"));
        Transaction begun = by.beginTransaction();
        SendReceipt receipt = by.send(message(command, bytes(command.text("body"))), begun);
        if (command.text("end").equals("commit")) {
            begun.commit();
        } else if (command.text("end").equals("rollback")) {
            begun.rollback();
        }
        return Collections.singletonMap("id", receipt.getMessageId().toString());
    }

    private static Message message(Command command, byte[] body) {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(command.text("topic")).setBody(body);
        if (command.has("tag")) {
            builder.setTag(command.text("tag"));
        }
        if (command.has("keys")) {
            builder.setKeys(command.text("keys").split(" "));
        }
        if (command.has("group")) {
            builder.setMessageGroup(command.text("group"));
        }
        if (command.has("delayMs")) {
            builder.setDeliveryTimestamp(System.currentTimeMillis() + command.number("delayMs", 0));
        }
        command.under("property.").forEach(builder::addProperty);
        return builder.build();
    }

    private static Map<String, FilterExpression> subscription(Command command) {
        FilterExpression expression = command.has("sql")
            ? new FilterExpression(command.text("sql"), FilterExpressionType.SQL92)
            : new FilterExpression(command.text("expression", "*"));
        return Collections.singletonMap(command.text("topic"), expression);
    }

    private Object push(Command command) throws Exception {
        List<Object> rows = Collections.synchronizedList(new ArrayList<>());
        Map<String, Integer> tries = new HashMap<>();
        int later = command.number("later", 0);
        long pauseMs = (long) (1000 * Double.parseDouble(command.text("pauseS", "0")));
        members.put(command.text("name"), PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration(command)).setConsumerGroup(command.text("group"))
            .setSubscriptionExpressions(subscription(command)).setMessageListener(view -> {
                try {
                    Thread.sleep(pauseMs);
                } catch (InterruptedException error) {
                    return ConsumeResult.FAILURE;
                }
                rows.add(row(view));
                synchronized (tries) {
                    int count = tries.merge(view.getMessageId().toString(), 1, Integer::sum);
                    return count <= later ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
                }
            }).build());
        inboxes.put(command.text("name"), rows);
        return Collections.emptyMap();
    }

    private Object await(Command command) throws Exception {
        List<Object> rows = inboxes.get(command.text("name"));
        long end = System.nanoTime() + command.number("timeoutMs", 0) * 1_000_000L;
        while (rows.size() < command.number("count", 0) && System.nanoTime() < end) {
            Thread.sleep(20);
        }
        return Collections.singletonMap("messages", Arrays.asList(rows.toArray()));
    }

    private Object simple(Command command) throws Exception {
        members.put(command.text("name"), PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration(command)).setConsumerGroup(command.text("group"))
            .setAwaitDuration(Duration.ofSeconds(command.number("waitS", 5)))
            .setSubscriptionExpressions(subscription(command)).build());
        received.put(command.text("name"), new ArrayList<>());
        return Collections.emptyMap();
    }

    private SimpleConsumer consumer(Command command) {
        return (SimpleConsumer) members.get(command.text("name"));
    }

    private MessageView kept(Command command) {
        return received.get(command.text("name")).get(command.number("at", 0));
    }

    private static Duration millis(Command command) {
        return Duration.ofMillis(command.number("invisibleMs", 0));
    }

    private Object receive(Command command) throws Exception {
        List<MessageView> kept = received.get(command.text("name"));
        List<Object> rows = new ArrayList<>();
        for (MessageView view : consumer(command).receive(command.number("count", 1), millis(command))) {
            Map<String, Object> row = row(view);
            row.put("at", kept.size());
            kept.add(view);
            rows.add(row);
        }
        return Collections.singletonMap("messages", rows);
    }

    private static Map<String, Object> row(MessageView view) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("body", hex(view.getBody()));
        row.put("topic", view.getTopic());
        row.put("id", view.getMessageId().toString());
        row.put("tag", view.getTag().orElse(""));
        row.put("keys", String.join(" ", view.getKeys()));
        row.put("group", view.getMessageGroup().orElse(""));
        row.put("properties", view.getProperties());
        row.put("attempt", view.getDeliveryAttempt());
        return row;
    }

    private static byte[] bytes(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }

    private static String hex(ByteBuffer body) {
        StringBuilder text = new StringBuilder();
        ByteBuffer bytes = body.duplicate();
        while (bytes.hasRemaining()) {
            text.append(String.format("%02x", bytes.get()));
        }
        return text.toString();
    }
}

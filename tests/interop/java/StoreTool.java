import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Writes and reads what a store may hold, through RocketMQ's own clients.
 *
 * <p>Arguments: name server, broker address, broker name. One command a line on standard input; each answers with JSON
 * lines, the last of which is {"event":"done"} or {"event":"error"}.
 */
public class StoreTool {
    private static final int TIMEOUT_MS = 30_000; // the machine may have other work
    private final String namesrv;
    private final String brokerAddress;
    private final String brokerName;
    private final DefaultMQProducer producer;
    private final TransactionMQProducer transactions;
    private final DefaultMQAdminExt admin;
    private final Map<String, DefaultMQPullConsumer> consumers = new HashMap<>();
    private final Map<String, Integer> checks = new ConcurrentHashMap<>();

    StoreTool(String namesrv, String brokerAddress, String brokerName) throws Exception {
        this.namesrv = namesrv;
        this.brokerAddress = brokerAddress;
        this.brokerName = brokerName;
        producer = new DefaultMQProducer("store-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.setMqClientApiTimeout(TIMEOUT_MS);
        producer.start();
        transactions = new TransactionMQProducer("store-transactions");
        transactions.setNamesrvAddr(namesrv);
        transactions.setSendMsgTimeout(TIMEOUT_MS);
        transactions.setMqClientApiTimeout(TIMEOUT_MS);
        transactions.setTransactionListener(new Decide());
        transactions.start();
        admin = new DefaultMQAdminExt(TIMEOUT_MS);
        admin.setMqClientApiTimeout(TIMEOUT_MS);
        admin.setNamesrvAddr(namesrv);
        admin.setAdminExtGroup("store-admin");
        admin.start();
    }

    private final class Decide implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object state) {
            return (LocalTransactionState) state;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checks.merge(message.getTransactionId(), 1, Integer::sum);
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    public static void main(String[] arguments) throws Exception {
        StoreTool tool = new StoreTool(arguments[0], arguments[1], arguments[2]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        print("event", "ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            try {
                tool.run(words);
                print("event", "done");
            } catch (Throwable error) {
                print("event", "error", "error", String.valueOf(error));
            }
        }
        System.exit(0);
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "topic": // name queues [attribute=value ...]
                topic(words);
                break;
            case "messages": // topic queues count seed
                messages(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), Long.parseLong(words[4]));
                break;
            case "batch": // topic queue count
                batch(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
                break;
            case "delayed": // topic queue level text
                delayed(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), words[4]);
                break;
            case "timer": // topic delay-ms text
                timer(words[1], Long.parseLong(words[2]), words[3]);
                break;
            case "transaction": // topic COMMIT_MESSAGE|ROLLBACK_MESSAGE|UNKNOW text
                transaction(words[1], words[2], words[3]);
                break;
            case "back": // topic queue offset group delay-level
                back(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), words[4], words[5]);
                break;
            case "commit": // group topic queue offset
                consumer(words[1])
                    .getDefaultMQPullConsumerImpl()
                    .getOffsetStore()
                    .updateConsumeOffsetToBroker(queue(words[2], words[3]), Long.parseLong(words[4]), false);
                break;
            case "offset": // group topic queue
                print("event", "offset", "offset", consumer(words[1]).fetchConsumeOffset(queue(words[2], words[3]), true));
                break;
            case "read": // topic queues
                read(words[1], Integer.parseInt(words[2]));
                break;
            case "bounds": // topic queue
                print(
                    "event", "bounds",
                    "min", admin.minOffset(queue(words[1], words[2])),
                    "max", admin.maxOffset(queue(words[1], words[2])));
                break;
            case "time": // topic queue timestamp
                print("event", "time", "offset", admin.searchOffset(queue(words[1], words[2]), Long.parseLong(words[3])));
                break;
            case "query": // topic key
                QueryResult found = admin.queryMessage(words[1], words[2], 64, 0, Long.MAX_VALUE);
                for (MessageExt message : found.getMessageList()) {
                    message(message);
                }
                break;
            case "id": // offset message id
                message(admin.viewMessage(words[2], words[1]));
                break;
            case "checks": // topic: its brokers hear of our producers, and may ask them
                MQClientInstance instance = transactions.getDefaultMQProducerImpl().getMqClientFactory();
                instance.updateTopicRouteInfoFromNameServer(words[1]);
                instance.sendHeartbeatToAllBrokerWithLock();
                for (Map.Entry<String, Integer> each : checks.entrySet()) {
                    print("event", "check", "transaction", each.getKey(), "count", each.getValue());
                }
                break;
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private MessageQueue queue(String topic, String id) {
        return new MessageQueue(topic, brokerName, Integer.parseInt(id));
    }

    private DefaultMQPullConsumer consumer(String group) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(group);
        if (consumer == null) {
            consumer = new DefaultMQPullConsumer(group);
            consumer.setNamesrvAddr(namesrv);
            consumer.setMqClientApiTimeout(TIMEOUT_MS);
            consumer.setConsumerPullTimeoutMillis(TIMEOUT_MS);
            consumer.setInstanceName("store-" + consumers.size());
            consumer.start();
            consumers.put(group, consumer);
        }
        return consumer;
    }

    @SuppressWarnings("unchecked")
    private void topic(String[] words) throws Exception {
        int queues = Integer.parseInt(words[2]);
        TopicConfig config = new TopicConfig(words[1], queues, queues, 6);
        if (words.length > 3) {
            Map<String, String> attributes = new HashMap<>();
            for (int at = 3; at < words.length; at++) {
                String[] pair = words[at].split("=", 2);
                attributes.put(pair[0], pair[1]);
            }
            TopicConfig.class.getMethod("setAttributes", Map.class).invoke(config, attributes);
        }
        admin.createAndUpdateTopicConfig(brokerAddress, config);
        for (int tries = 0; tries < 100; tries++) { // until the name server knows it
            try {
                if (producer.fetchPublishMessageQueues(words[1]).size() >= queues) {
                    return;
                }
            } catch (org.apache.rocketmq.client.exception.MQClientException error) {
                Thread.sleep(100);
            }
        }
        throw new IllegalStateException("no route of " + words[1]);
    }

    private void sent(Message message, SendResult result) {
        String[] uniqueIds = result.getMsgId().split(",");
        // The answer to a half message has no offset id: TransactionSendResult keeps it to itself.
        String[] ids = result.getOffsetMsgId() == null ? uniqueIds : result.getOffsetMsgId().split(",");
        for (int at = 0; at < ids.length; at++) {
            print(
                "event", "sent",
                "status", result.getSendStatus().name(),
                "topic", message.getTopic(),
                "queue", result.getMessageQueue().getQueueId(),
                "offset", result.getQueueOffset() + at,
                "id", uniqueIds[at],
                "offset_id", ids[at]);
        }
    }

    private void messages(String topic, int queues, int count, long seed) throws Exception {
        Random random = new Random(seed);
        AtomicInteger number = new AtomicInteger();
        for (int at = 0; at < count; at++) {
            int kind = random.nextInt(20);
            int bytes = kind == 0 ? 6000 : kind == 1 ? 3000 : 1 + random.nextInt(80);
            byte[] body = new byte[bytes];
            if (kind == 0) {
                java.util.Arrays.fill(body, (byte) ('a' + at % 26)); // compressed by the client
            } else if (kind == 2) {
                random.nextBytes(body); // no text
            } else {
                for (int letter = 0; letter < bytes; letter++) {
                    body[letter] = (byte) ('a' + random.nextInt(8));
                }
            }
            Message message = new Message(topic, body);
            if (at % 3 != 0) {
                message.setTags("tag" + at % 5);
            }
            if (at % 4 == 1) {
                message.setKeys("key" + at);
            } else if (at % 4 == 2) {
                List<String> keys = new ArrayList<>();
                keys.add("first" + at);
                keys.add("schl\u00fcssel" + at);
                keys.add("all");
                message.setKeys(keys);
            }
            if (at % 2 == 0) {
                message.putUserProperty("number", String.valueOf(number.incrementAndGet()));
                message.putUserProperty("gr\u00fc\u00dfe", "\u4f60\u597d \ud83d\ude80");
            }
            message.setFlag(at);
            if (at % 7 == 0) {
                message.setWaitStoreMsgOK(false);
            }
            sent(message, producer.send(message, queue(topic, String.valueOf(random.nextInt(queues)))));
        }
    }

    private void batch(String topic, int queue, int count) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int at = 0; at < count; at++) {
            Message message = new Message(topic, "batched", "batch" + at, ("body" + at).getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("position", String.valueOf(at));
            messages.add(message);
        }
        sent(messages.get(0), producer.send(messages, queue(topic, String.valueOf(queue))));
    }

    private void delayed(String topic, int queue, int level, String text) throws Exception {
        Message message = new Message(topic, "delayed", "delay" + level, text.getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeLevel(level);
        sent(message, producer.send(message, queue(topic, String.valueOf(queue))));
    }

    private void timer(String topic, long delayMs, String text) throws Exception {
        Message message = new Message(topic, "timer", "timer" + text, text.getBytes(StandardCharsets.UTF_8));
        MessageAccessor.putProperty(message, "TIMER_DELIVER_MS", String.valueOf(System.currentTimeMillis() + delayMs));
        sent(message, producer.send(message));
    }

    private void transaction(String topic, String state, String text) throws Exception {
        Message message = new Message(topic, "transaction", state, text.getBytes(StandardCharsets.UTF_8));
        sent(message, transactions.sendMessageInTransaction(message, LocalTransactionState.valueOf(state)));
    }

    private void back(String topic, int queue, long offset, String group, String level) throws Exception {
        DefaultMQPullConsumer consumer = consumer(group);
        PullResult result = consumer.pull(queue(topic, String.valueOf(queue)), "*", offset, 1);
        consumer.sendMessageBack(result.getMsgFoundList().get(0), Integer.parseInt(level), brokerName);
    }

    private void read(String topic, int queues) throws Exception {
        DefaultMQPullConsumer consumer = consumer("store-reader");
        for (int id = 0; id < queues; id++) {
            MessageQueue queue = queue(topic, String.valueOf(id));
            long offset = admin.minOffset(queue);
            long end = admin.maxOffset(queue);
            print("event", "queue", "topic", topic, "queue", id, "min", offset, "max", end);
            while (offset < end) {
                PullResult result = consumer.pull(queue, "*", offset, 32);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        message(message);
                    }
                } else if (result.getPullStatus() == PullStatus.NO_NEW_MSG || result.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException(queue + " at " + offset + ": " + result);
                }
                offset = result.getNextBeginOffset();
            }
        }
    }

    private static void message(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.remove("MIN_OFFSET"); // the client's own, with every pull
        properties.remove("MAX_OFFSET");
        print(
            "event", "message",
            "topic", message.getTopic(),
            "queue", message.getQueueId(),
            "offset", message.getQueueOffset(),
            "physical", message.getCommitLogOffset(),
            "size", message.getStoreSize(),
            "sys_flag", message.getSysFlag(),
            "flag", message.getFlag(),
            "born", message.getBornTimestamp(),
            "stored", message.getStoreTimestamp(),
            "reconsumed", message.getReconsumeTimes(),
            "prepared", message.getPreparedTransactionOffset(),
            "id", message.getMsgId(),
            "body", Base64.getEncoder().encodeToString(message.getBody()),
            "properties", properties);
    }

    private static synchronized void print(Object... pairs) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            row.put((String) pairs[at], pairs[at + 1]);
        }
        StringBuilder out = new StringBuilder();
        json(out, row);
        System.out.println(out);
        System.out.flush();
    }

    private static void json(StringBuilder out, Object value) {
        if (value instanceof Map) {
            char before = '{';
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) {
                out.append(before);
                json(out, each.getKey());
                out.append(':');
                json(out, each.getValue());
                before = ',';
            }
            out.append(before == '{' ? "{}" : "}");
        } else if (value instanceof String) {
            out.append('"');
            for (char unit : ((String) value).toCharArray()) {
                if (unit < ' ' || unit == '"' || unit == '\\' || unit > '~') {
                    out.append(String.format("\\u%04x", (int) unit));
                } else {
                    out.append(unit);
                }
            }
            out.append('"');
        } else {
            out.append(value);
        }
    }
}

import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.common.message.MessageQueue;

/** The JSON bodies that clients of this version send, made by the client's own classes; one line for each. */
public final class Bodies {
    private Bodies() {
    }

    private static Class<?> type(String name) throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.rocketmq.remoting.protocol." + name);
        } catch (ClassNotFoundException error) {
            return Class.forName("org.apache.rocketmq.common.protocol." + name);
        }
    }

    private static Object make(String name) throws Exception {
        return type(name).getDeclaredConstructor().newInstance();
    }

    private static void set(Object target, String property, Class<?> of, Object value) throws Exception {
        target.getClass().getMethod("set" + property, of).invoke(target, value);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object constant(String name, String value) throws Exception {
        return Enum.valueOf((Class<? extends Enum>) (Class) type(name), value);
    }

    private static void print(String name, Object body) throws Exception {
        byte[] encoded = (byte[]) body.getClass().getMethod("encode").invoke(body);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("name", name);
        row.put("body", Base64.getEncoder().encodeToString(encoded));
        System.out.println(Json.of(row));
    }

    private static Object subscription() throws Exception {
        Object data = make("heartbeat.SubscriptionData");
        set(data, "Topic", String.class, "Topic");
        set(data, "SubString", String.class, "a || \u00e9\"\\");
        set(data, "TagsSet", java.util.Set.class, Collections.singleton("a"));
        set(data, "CodeSet", java.util.Set.class, Collections.singleton(97));
        set(data, "SubVersion", long.class, 1_700_000_000_123L);
        return data;
    }

    public static void main(String[] arguments) throws Exception {
        MessageQueue queue = new MessageQueue("Topic", "broker-a", 3);

        Object heartbeat = make("heartbeat.HeartbeatData");
        set(heartbeat, "ClientID", String.class, "127.0.0.1@client");
        Object producer = make("heartbeat.ProducerData");
        set(producer, "GroupName", String.class, "producers");
        set(heartbeat, "ProducerDataSet", java.util.Set.class, Collections.singleton(producer));
        Object consumer = make("heartbeat.ConsumerData");
        set(consumer, "GroupName", String.class, "consumers");
        Object type = constant("heartbeat.ConsumeType", "CONSUME_PASSIVELY");
        set(consumer, "ConsumeType", type.getClass(), type);
        Object model = constant("heartbeat.MessageModel", "CLUSTERING");
        set(consumer, "MessageModel", model.getClass(), model);
        set(consumer, "ConsumeFromWhere", org.apache.rocketmq.common.consumer.ConsumeFromWhere.class,
            org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        set(consumer, "SubscriptionDataSet", java.util.Set.class, Collections.singleton(subscription()));
        set(heartbeat, "ConsumerDataSet", java.util.Set.class, Collections.singleton(consumer));
        print("HEART_BEAT", heartbeat);

        for (String kind : new String[] {"Lock", "Unlock"}) {
            Object body = make("body." + kind + "BatchRequestBody");
            set(body, "ConsumerGroup", String.class, "consumers");
            set(body, "ClientId", String.class, "127.0.0.1@client");
            set(body, "MqSet", java.util.Set.class, Collections.singleton(queue));
            print(kind.toUpperCase() + "_BATCH_MQ", body);
        }

        Object check = make("body.CheckClientRequestBody");
        set(check, "ClientId", String.class, "127.0.0.1@client");
        set(check, "Group", String.class, "consumers");
        set(check, "SubscriptionData", type("heartbeat.SubscriptionData"), subscription());
        print("CHECK_CLIENT_CONFIG", check);

        Object status = make("body.GetConsumerStatusBody");
        set(status, "MessageQueueTable", Map.class, Collections.singletonMap(queue, 42L));
        print("GET_CONSUMER_STATUS_FROM_CLIENT", status);

        Object running = make("body.ConsumerRunningInfo");
        Properties properties = new Properties();
        properties.setProperty("PROP_CLIENT_VERSION", "V");
        set(running, "Properties", Properties.class, properties);
        Object processQueue = make("body.ProcessQueueInfo");
        set(processQueue, "CommitOffset", long.class, 42L);
        java.util.TreeMap<Object, Object> queues = new java.util.TreeMap<>();
        queues.put(queue, processQueue);
        set(running, "MqTable", java.util.TreeMap.class, queues);
        print("GET_CONSUMER_RUNNING_INFO", running);
        System.exit(0);
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/** What RocketMQ reads from a heartbeat's JSON, by its own classes: one hexadecimal body a line, one answer for each. */
public final class Fastjson {
    private Fastjson() {
    }

    private static Class<?> type(String name) throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.rocketmq.remoting.protocol." + name);
        } catch (ClassNotFoundException error) {
            return Class.forName("org.apache.rocketmq.common.protocol." + name);
        }
    }

    private static Object get(Object target, String property) throws Exception {
        return target.getClass().getMethod(property).invoke(target);
    }

    private static Object plain(Object value) {
        return value instanceof Enum ? ((Enum<?>) value).name() : value;
    }

    private static Map<String, Object> read(byte[] body) throws Exception {
        Class<?> serializable;
        try {
            serializable = Class.forName("org.apache.rocketmq.remoting.protocol.RemotingSerializable");
        } catch (ClassNotFoundException error) {
            serializable = Class.forName("org.apache.rocketmq.common.protocol.RemotingSerializable");
        }
        Object data = serializable.getMethod("decode", byte[].class, Class.class)
            .invoke(null, body, type("heartbeat.HeartbeatData"));
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("clientID", get(data, "getClientID"));
        Object consumer = ((Set<?>) get(data, "getConsumerDataSet")).iterator().next();
        row.put("groupName", get(consumer, "getGroupName"));
        row.put("unitMode", get(consumer, "isUnitMode"));
        row.put("messageModel", plain(get(consumer, "getMessageModel")));
        Set<?> subscriptions = (Set<?>) get(consumer, "getSubscriptionDataSet");
        if (subscriptions == null || subscriptions.isEmpty()) {
            row.put("subVersion", null);
        } else {
            Object subscription = subscriptions.iterator().next();
            row.put("subVersion", get(subscription, "getSubVersion"));
            row.put("codeSet", String.valueOf(get(subscription, "getCodeSet")));
        }
        return row;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            byte[] body = new byte[line.length() / 2];
            for (int i = 0; i < body.length; i++) {
                body[i] = (byte) Integer.parseInt(line.substring(2 * i, 2 * i + 2), 16);
            }
            Object answer;
            try {
                answer = read(body);
            } catch (Throwable error) {
                answer = Collections.singletonMap("refused", true);
            }
            answers.println(Json.of(answer));
        }
        System.exit(0);
    }
}

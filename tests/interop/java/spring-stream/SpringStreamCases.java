import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.Function;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

/** Spring Cloud Stream's binder: each case prints its name and why it failed, if it did. */
@Configuration
@EnableAutoConfiguration
public class SpringStreamCases {
    private static final Map<String, List<String>> GOT = new ConcurrentHashMap<>();

    private static List<String> at(String where) {
        return GOT.computeIfAbsent(where, key -> Collections.synchronizedList(new ArrayList<>()));
    }

    @Bean
    public Consumer<Message<String>> plain() {
        return message -> at("plain").add(message.getPayload() + " " + message.getHeaders().get("colour"));
    }

    @Bean
    public Consumer<String> tags() {
        return message -> at("tags").add(message);
    }

    @Bean
    public Consumer<String> ordered() {
        return message -> at("ordered").add(message);
    }

    @Bean
    public Function<String, String> upper() {
        return String::toUpperCase;
    }

    @Bean
    public Consumer<String> uppered() {
        return message -> at("uppered").add(message);
    }

    @Bean
    public Consumer<String> retry() {
        return message -> {
            at("retry").add(message);
            if (at("retry").size() == 1) {
                throw new IllegalStateException("the first time");
            }
        };
    }

    private static void expect(String name, String where, boolean inOrder, String... wanted) throws Exception {
        long giveUp = System.currentTimeMillis() + 60_000;
        while (at(where).size() < wanted.length && System.currentTimeMillis() < giveUp) {
            Thread.sleep(20);
        }
        List<String> got = new ArrayList<>(at(where));
        boolean right = inOrder ? got.equals(Arrays.asList(wanted))
            : new TreeSet<>(got).equals(new TreeSet<>(Arrays.asList(wanted))) && got.size() == wanted.length;
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("case", name);
        row.put("failed", right ? null : got + " instead of " + Arrays.asList(wanted));
        System.out.println(Json.of(row));
    }

    private static Message<String> of(String body, String header, String value) {
        return MessageBuilder.withPayload(body).setHeader(header, value).build();
    }

    public static void main(String[] arguments) throws Exception {
        ConfigurableApplicationContext context = new SpringApplication(SpringStreamCases.class).run(arguments);
        StreamBridge bridge = context.getBean(StreamBridge.class);
        bridge.send("toPlain-out-0", of("hello", "colour", "red"));
        expect("a function gets payload and header", "plain", false, "hello red");
        for (String tag : new String[] {"a", "b", "c"}) {
            bridge.send("toTags-out-0", of(tag, "TAGS", tag));
        }
        expect("tag filter", "tags", false, "a", "c");
        for (int number = 0; number < 5; number++) {
            bridge.send("toOrdered-out-0", "o" + number);
        }
        expect("orderly consumer", "ordered", true, "o0", "o1", "o2", "o3", "o4");
        bridge.send("toUpper-out-0", "quiet");
        expect("a function from topic to topic", "uppered", false, "QUIET");
        bridge.send("toRetry-out-0", "again");
        expect("a function that throws gets the message again", "retry", false, "again", "again");
        System.out.println("{\"end\":true}");
        System.exit(0);
    }
}

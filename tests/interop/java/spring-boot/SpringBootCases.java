import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.MessageModel;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.annotation.SelectorType;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQReplyListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

/** Spring Boot's starter: each case prints its name and why it failed, if it did. System properties: see the test. */
@Configuration
@EnableAutoConfiguration
@Import({SpringBootCases.Plain.class, SpringBootCases.Tags.class, SpringBootCases.Sql.class,
    SpringBootCases.Ordered.class, SpringBootCases.Retry.class, SpringBootCases.Broadcast.class,
    SpringBootCases.Reply.class, SpringBootCases.Raw.class, SpringBootCases.Decisions.class})
public class SpringBootCases {
    private static final Map<String, List<String>> GOT = new ConcurrentHashMap<>();

    private static List<String> at(String where) {
        return GOT.computeIfAbsent(where, key -> Collections.synchronizedList(new ArrayList<>()));
    }

    @RocketMQMessageListener(topic = "${prefix}-plain", consumerGroup = "${prefix}-plain")
    public static class Plain implements RocketMQListener<String> {
        @Override
        public void onMessage(String message) {
            at("plain").add(message);
        }
    }

    @RocketMQMessageListener(topic = "${prefix}-tags", consumerGroup = "${prefix}-tags", selectorExpression = "a || c")
    public static class Tags implements RocketMQListener<String> {
        @Override
        public void onMessage(String message) {
            at("tags").add(message);
        }
    }

    @RocketMQMessageListener(topic = "${prefix}-tags", consumerGroup = "${prefix}-sql",
        selectorType = SelectorType.SQL92, selectorExpression = "size > 3")
    public static class Sql implements RocketMQListener<String> {
        @Override
        public void onMessage(String message) {
            at("sql").add(message);
        }
    }

    @RocketMQMessageListener(topic = "${prefix}-ordered", consumerGroup = "${prefix}-ordered",
        consumeMode = ConsumeMode.ORDERLY)
    public static class Ordered implements RocketMQListener<String> {
        @Override
        public void onMessage(String message) {
            at("ordered").add(message);
        }
    }

    @RocketMQMessageListener(topic = "${prefix}-retry", consumerGroup = "${prefix}-retry")
    public static class Retry implements RocketMQListener<String> {
        @Override
        public void onMessage(String message) {
            at("retry").add(message);
            if (at("retry").size() == 1) {
                throw new IllegalStateException("the first time");
            }
        }
    }

    @RocketMQMessageListener(topic = "${prefix}-plain", consumerGroup = "${prefix}-broadcast",
        messageModel = MessageModel.BROADCASTING)
    public static class Broadcast implements RocketMQListener<String> {
        @Override
        public void onMessage(String message) {
            at("broadcast").add(message);
        }
    }

    @RocketMQMessageListener(topic = "${prefix}-reply", consumerGroup = "${prefix}-reply")
    public static class Reply implements RocketMQReplyListener<String, String> {
        @Override
        public String onMessage(String message) {
            return "re:" + message;
        }
    }

    @RocketMQMessageListener(topic = "${prefix}-raw", consumerGroup = "${prefix}-raw")
    public static class Raw implements RocketMQListener<MessageExt> {
        @Override
        public void onMessage(MessageExt message) {
            at("raw").add(message.getKeys() + " " + message.getUserProperty("colour") + " " + message.getBody().length);
        }
    }

    @RocketMQTransactionListener
    public static class Decisions implements RocketMQLocalTransactionListener {
        @Override
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return RocketMQLocalTransactionState.valueOf((String) argument);
        }

        @Override
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            return RocketMQLocalTransactionState.COMMIT;
        }
    }

    private interface Case {
        void run() throws Exception;
    }

    private static void check(String name, Case body) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("case", name);
        try {
            body.run();
            row.put("failed", null);
        } catch (Throwable error) {
            error.printStackTrace();
            row.put("failed", String.valueOf(error));
        }
        System.out.println(Json.of(row));
    }

    private static void expect(String where, String... wanted) throws Exception {
        long giveUp = System.currentTimeMillis() + 60_000;
        while (at(where).size() < wanted.length && System.currentTimeMillis() < giveUp) {
            Thread.sleep(20);
        }
        Thread.sleep(200);
        if (!new TreeSet<>(at(where)).equals(new TreeSet<>(Arrays.asList(wanted))) || at(where).size() < wanted.length) {
            throw new IllegalStateException(where + ": " + at(where) + " instead of " + Arrays.asList(wanted));
        }
        at(where).clear();
    }

    private static void stored(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }

    private static Message<String> of(String body) {
        return MessageBuilder.withPayload(body).build();
    }

    public static void main(String[] arguments) {
        ConfigurableApplicationContext context = new SpringApplication(SpringBootCases.class).run(arguments);
        RocketMQTemplate template = context.getBean(RocketMQTemplate.class);
        String prefix = System.getProperty("prefix");
        String plain = prefix + "-plain";
        check("broadcast listener", () -> {
            long giveUp = System.currentTimeMillis() + 60_000;
            while (at("broadcast").isEmpty() && System.currentTimeMillis() < giveUp) {
                template.syncSend(plain, "warm-up");
                Thread.sleep(1000);
            }
            if (at("broadcast").isEmpty()) {
                throw new IllegalStateException("nothing came");
            }
            Thread.sleep(3000);
            at("plain").clear();
        });
        check("syncSend", () -> {
            stored(template.syncSend(plain, "sync"));
            expect("plain", "sync");
        });
        check("asyncSend", () -> {
            CountDownLatch sent = new CountDownLatch(1);
            template.asyncSend(plain, "async", new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                }
            });
            if (!sent.await(10, TimeUnit.SECONDS)) {
                throw new IllegalStateException("no callback");
            }
            expect("plain", "async");
        });
        check("sendOneWay", () -> {
            template.sendOneWay(plain, "oneway");
            expect("plain", "oneway");
        });
        check("convertAndSend", () -> {
            template.convertAndSend(plain, "converted");
            expect("plain", "converted");
        });
        check("syncSend of a list, a batch", () -> {
            stored(template.syncSend(plain, Arrays.asList(of("b1"), of("b2"), of("b3"))));
            expect("plain", "b1", "b2", "b3");
        });
        check("delay level", () -> {
            long began = System.currentTimeMillis();
            stored(template.syncSend(plain, of("late"), 10_000, 3));
            expect("plain", "late");
            if (System.currentTimeMillis() - began < 2900) {
                throw new IllegalStateException("too early");
            }
        });
        check("tag filter", () -> {
            for (String tag : new String[] {"a", "b", "c"}) {
                stored(template.syncSend(prefix + "-tags:" + tag, tag));
            }
            expect("tags", "a", "c");
        });
        check("SQL filter", () -> {
            stored(template.syncSend(prefix + "-tags:s", MessageBuilder.withPayload("small").setHeader("size", 2).build()));
            stored(template.syncSend(prefix + "-tags:s", MessageBuilder.withPayload("large").setHeader("size", 9).build()));
            expect("sql", "large");
        });
        check("syncSendOrderly, orderly listener", () -> {
            for (int number = 0; number < 5; number++) {
                stored(template.syncSendOrderly(prefix + "-ordered", "o" + number, "key"));
            }
            long giveUp = System.currentTimeMillis() + 60_000;
            while (at("ordered").size() < 5 && System.currentTimeMillis() < giveUp) {
                Thread.sleep(20);
            }
            if (!at("ordered").equals(Arrays.asList("o0", "o1", "o2", "o3", "o4"))) {
                throw new IllegalStateException(at("ordered").toString());
            }
        });
        check("a listener that throws gets the message again", () -> {
            stored(template.syncSend(prefix + "-retry", "again"));
            expect("retry", "again", "again");
        });
        check("keys, headers and bytes", () -> {
            stored(template.syncSend(prefix + "-raw", MessageBuilder.withPayload(new byte[] {0, 1, (byte) 255})
                .setHeader("KEYS", "k1").setHeader("colour", "red").build()));
            expect("raw", "k1 red 3");
        });
        check("sendMessageInTransaction: commit, rollback, check", () -> {
            for (String state : new String[] {"COMMIT", "ROLLBACK", "UNKNOWN"}) {
                template.sendMessageInTransaction(plain, of("tx " + state), state);
            }
            expect("plain", "tx COMMIT", "tx UNKNOWN");
        });
        check("sendAndReceive", () -> {
            String reply = template.sendAndReceive(prefix + "-reply", "question", String.class, 30_000);
            if (!"re:question".equals(reply)) {
                throw new IllegalStateException(String.valueOf(reply));
            }
        });
        System.out.println("{\"end\":true}");
        System.exit(0);
    }
}

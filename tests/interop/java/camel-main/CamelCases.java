import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.camel.ProducerTemplate;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.rocketmq.RocketMQConstants;
import org.apache.camel.impl.DefaultCamelContext;

/** Camel's component: each case prints its name and why it failed, if it did. Arguments: name server, prefix. */
public final class CamelCases {
    private CamelCases() {
    }

    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0];
        String prefix = arguments[1];
        List<String> plain = Collections.synchronizedList(new ArrayList<>());
        List<String> tagged = Collections.synchronizedList(new ArrayList<>());
        DefaultCamelContext context = new DefaultCamelContext();
        context.addRoutes(new RouteBuilder() {
            @Override
            public void configure() {
                String at = "?namesrvAddr=" + namesrv;
                from("direct:plain").to("rocketmq:" + prefix + "-plain" + at + "&producerGroup=" + prefix + "-p1");
                from("direct:tagged").to("rocketmq:" + prefix + "-tags" + at + "&producerGroup=" + prefix + "-p2");
                from("rocketmq:" + prefix + "-plain" + at + "&consumerGroup=" + prefix + "-c1")
                    .process(exchange -> plain.add(exchange.getMessage().getBody(String.class)
                        + " " + exchange.getMessage().getHeader(RocketMQConstants.KEY)));
                from("rocketmq:" + prefix + "-tags" + at + "&consumerGroup=" + prefix + "-c2&subscribeTags=a||c")
                    .process(exchange -> tagged.add(exchange.getMessage().getBody(String.class)));
            }
        });
        context.start();
        ProducerTemplate template = context.createProducerTemplate();
        template.sendBodyAndHeader("direct:plain", "hello", RocketMQConstants.OVERRIDE_MESSAGE_KEY, "k1");
        report("a route sends, a route gets body and key", plain, "hello k1");
        for (String tag : new String[] {"a", "b", "c"}) {
            template.sendBodyAndHeader("direct:tagged", tag, RocketMQConstants.OVERRIDE_TAG, tag);
        }
        report("tag filter", tagged, "a", "c");
        System.out.println("{\"end\":true}");
        System.exit(0);
    }

    private static void report(String name, List<String> got, String... wanted) throws Exception {
        long giveUp = System.currentTimeMillis() + 60_000;
        while (got.size() < wanted.length && System.currentTimeMillis() < giveUp) {
            Thread.sleep(20);
        }
        boolean right = new TreeSet<>(got).equals(new TreeSet<>(Arrays.asList(wanted)));
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("case", name);
        row.put("failed", right ? null : got + " instead of " + Arrays.asList(wanted));
        System.out.println(Json.of(row));
    }
}

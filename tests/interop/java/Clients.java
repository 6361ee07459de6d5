import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;

/** RocketMQ's own clients, driven by lines on stdin; one JSON line on stdout for each. Argument: name server. */
public final class Clients {
    private Clients() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        Producers producers = new Producers(arguments[0]);
        Consumers consumers = new Consumers(arguments[0], producers);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Object answer;
            try {
                answer = answer(new Command(line), producers, consumers);
            } catch (Throwable error) {
                error.printStackTrace();
                answer = Collections.singletonMap("failed", String.valueOf(error));
            }
            answers.println(Json.of(answer));
        }
        System.exit(0);
    }

    private static Object answer(Command command, Producers producers, Consumers consumers) throws Exception {
        switch (command.verb) {
            case "producer": return producers.start(command);
            case "send": return producers.send(command);
            case "batch": return producers.batch(command);
            case "transaction": return producers.transaction(command);
            case "checks": return producers.checks(command);
            case "request": return producers.request(command);
            case "recall": return producers.recall(command);
            case "view": return producers.view(command);
            case "query": return producers.query(command);
            case "push": return consumers.push(command);
            case "await": return consumers.await(command);
            case "assigned": return consumers.assigned(command);
            case "pullStart": return consumers.pullStart(command);
            case "pull": return consumers.pull(command);
            case "offsets": return consumers.offsets(command);
            case "createTopic": return consumers.createTopic(command);
            case "liteStart": return consumers.liteStart(command);
            case "litePoll": return consumers.litePoll(command);
            case "liteSeek": return consumers.liteSeek(command);
            case "liteCommitted": return consumers.liteCommitted(command);
            case "shutdown":
                producers.shutdown(command.text("name"));
                consumers.shutdown(command.text("name"));
                return Collections.singletonMap("ended", command.text("name"));
            default:
                throw new IllegalArgumentException("no verb " + command.verb);
        }
    }
}

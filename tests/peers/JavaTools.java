// Command-line tools of Kafka, one after another in one JVM, because a JVM takes seconds to start:
//   java -cp '.cache/kafka/libs/*' tests/peers/JavaTools.java
// A line of standard input is a main class and its arguments, separated by tabs. After the output
// of each tool comes a line "exit N" with its exit code.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

public class JavaTools {
    static class Exited extends RuntimeException {
        final int code;

        Exited(int code) {
            this.code = code;
        }
    }

    static int run(String[] words) throws Exception {
        try {
            Class.forName(words[0])
                .getMethod("main", String[].class)
                .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            return 0;
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Exited exited) {
                return exited.code;
            }
            error.getCause().printStackTrace(System.out);
            return 1;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.Procedure exit = (code, message) -> {
            throw new Exited(code);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        System.setErr(System.out);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            int code = run(line.split("\t"));
            System.out.println("exit " + code);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}

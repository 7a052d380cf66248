// Command-line tools of Kafka, one after another in one JVM, because a JVM takes seconds to start:
//   java -cp '.cache/kafka/libs/*' tests/peers/JavaTools.java
// Standard input has the tools to run: the number of words; the main class and its arguments; and
// the input of the tool. Standard output has for each tool: its exit code, its output, its errors.
// Numbers have four bytes; words, input, output and errors follow their number of bytes.

import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

public class JavaTools {
    /** Thrown where a process would have ended. */
    static class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    /** What a tool prints. Once it has exited, its other threads may go on, as in a process. */
    static class Captured extends OutputStream {
        private ByteArrayOutputStream bytes = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int one) {
            if (Thread.currentThread() != ended) {
                bytes.write(one);
            }
        }

        @Override
        public synchronized void write(byte[] some, int start, int count) {
            if (Thread.currentThread() != ended) {
                bytes.write(some, start, count);
            }
        }

        synchronized byte[] take() {
            byte[] found = bytes.toByteArray();
            bytes = new ByteArrayOutputStream();
            return found;
        }
    }

    private static final Captured OUTPUT = new Captured();
    private static final Captured ERRORS = new Captured();
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Integer code;
    /** The thread of the tool after its exit. */
    private static volatile Thread ended;

    /** The first exit of a tool is the one that counts, as in a process. */
    static synchronized void exit(int status) {
        if (code == null) {
            code = status;
            ended = Thread.currentThread();
        }
        throw new Exited();
    }

    static synchronized void addHook(Runnable hook) {
        HOOKS.add(hook);
    }

    static void call(String[] words) throws ReflectiveOperationException {
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exited)) {
                System.err.print("Exception in thread \"main\" ");
                error.getCause().printStackTrace();
                code = code == null ? 1 : code;
            }
        }
    }

    static int run(String[] words, byte[] input) throws Exception {
        code = null;
        System.setIn(new ByteArrayInputStream(input));
        call(words);
        int status = code == null ? 0 : code;
        ended = null;
        for (Runnable hook : HOOKS) {
            Thread thread = new Thread(hook);
            thread.start();
            thread.join();
        }
        HOOKS.clear();
        System.out.flush();
        System.err.flush();
        return status;
    }

    static byte[] read(DataInputStream stream) throws IOException {
        return stream.readNBytes(stream.readInt());
    }

    static void write(DataOutputStream stream, byte[] bytes) throws IOException {
        stream.writeInt(bytes.length);
        stream.write(bytes);
    }

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> addHook(hook));
        DataInputStream asked = new DataInputStream(System.in);
        DataOutputStream told = new DataOutputStream(new BufferedOutputStream(System.out));
        System.setOut(new PrintStream(OUTPUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERRORS, true, StandardCharsets.UTF_8));
        try {
            while (true) {
                String[] words = new String[asked.readInt()];
                for (int n = 0; n < words.length; n++) {
                    words[n] = new String(read(asked), StandardCharsets.UTF_8);
                }
                told.writeInt(run(words, read(asked)));
                write(told, OUTPUT.take());
                write(told, ERRORS.take());
                told.flush();
            }
        } catch (EOFException ended) {
            Runtime.getRuntime().halt(0);
        }
    }
}

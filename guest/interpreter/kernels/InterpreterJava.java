import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import jdk.jshell.JShell;
import org.dflib.jjava.jupyter.channels.JupyterConnection;
import org.dflib.jjava.jupyter.channels.ShellReplyEnvironment;
import org.dflib.jjava.jupyter.kernel.JupyterIO;
import org.dflib.jjava.jupyter.kernel.KernelConnectionProperties;
import org.dflib.jjava.jupyter.kernel.LanguageInfo;
import org.dflib.jjava.jupyter.kernel.comm.CommManager;
import org.dflib.jjava.jupyter.kernel.display.Renderer;
import org.dflib.jjava.jupyter.kernel.magic.MagicsRegistry;
import org.dflib.jjava.jupyter.kernel.magic.MagicsResolver;
import org.dflib.jjava.jupyter.kernel.util.StringStyler;
import org.dflib.jjava.jupyter.messages.Message;
import org.dflib.jjava.jupyter.messages.request.ExecuteRequest;
import org.dflib.jjava.kernel.JavaKernel;
import org.dflib.jjava.kernel.JavaKernelBuilder;
import org.dflib.jjava.kernel.execution.CodeEvaluator;
import org.dflib.jjava.kernel.magics.ClasspathMagic;
import org.dflib.jjava.kernel.magics.LoadMagic;
import org.dflib.jjava.kernel.magics.TimeMagic;
import org.dflib.jjava.maven.MavenDependencyResolver;
import org.dflib.jjava.maven.magics.MavenMagic;
import org.dflib.jjava.maven.magics.MavenRepoMagic;

/** Starts a JJava kernel that loses no output, numbers only the user's cells and explains errors without colours. */
public final class InterpreterJava extends JavaKernel {
    private static final Pattern COLOURS = Pattern.compile("\u001b\\[[0-9;]*m");

    private final Batches out = new Batches(io.out);
    private final Batches err = new Batches(io.err);

    public static void main(String[] arguments) throws Exception {
        System.setProperty("java.util.logging.SimpleFormatter.format", "%4$s %3$s: %5$s%n");
        var connection = new JupyterConnection(KernelConnectionProperties.parse(Files.readString(Path.of(arguments[0]))));
        // A full queue would drop output. Ours is emptied at once, by a server that makes this process wait when it must.
        connection.getIOPub().setSndHWM(0);
        var maven = new MavenDependencyResolver();
        var kernel = new Builder()
                .name("java")
                .lineMagic("load", new LoadMagic())
                .lineMagic("classpath", new ClasspathMagic())
                .lineMagic("time", new TimeMagic())
                .cellMagic("time", new TimeMagic())
                .lineMagic("maven", new MavenMagic(maven))
                .lineMagic("mavenRepo", new MavenRepoMagic(maven))
                .build();
        kernel.onStartup();
        kernel.becomeHandlerForConnection(connection);
        connection.connect();
        connection.waitUntilClose();
    }

    private InterpreterJava(LanguageInfo language, JupyterIO io, CommManager comms, Renderer renderer,
            MagicsResolver resolver, MagicsRegistry magics, JShell shell, CodeEvaluator evaluator) {
        super("java", "", language, List.of(), null, io, comms, renderer, resolver, magics, true,
                new StringStyler.Builder().withLinePrefix("|   ").build(), shell, evaluator);
    }

    @Override
    protected void replaceOutputStreams(ShellReplyEnvironment environment) {
        super.replaceOutputStreams(environment);
        System.setOut(new PrintStream(out, false, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, false, StandardCharsets.UTF_8));
    }

    @Override
    protected synchronized void handleExecuteRequest(ShellReplyEnvironment environment, Message<ExecuteRequest> message) {
        super.handleExecuteRequest(environment, message);
        if (message.getContent().isSilent()) {
            executionCount.decrementAndGet();
        }
    }

    @Override
    protected Object doEval(String source) {
        try {
            return super.doEval(source);
        } finally {
            System.out.flush();
            System.err.flush();
            out.send();
            err.send();
        }
    }

    @Override
    protected List<String> formatError(Throwable error) {
        return super.formatError(error).stream().map(line -> COLOURS.matcher(line).replaceAll("")).toList();
    }

    /** What is printed within a moment travels together: JJava sends a message for each call of print. */
    private static final class Batches extends OutputStream {
        private static final int LARGE = 1 << 16;
        private static final int MOMENT_MS = 20;
        private static final ScheduledExecutorService CLOCK = Executors.newSingleThreadScheduledExecutor(work -> {
            var thread = new Thread(work, "output");
            thread.setDaemon(true);
            return thread;
        });

        private final PrintStream below;
        private final ByteArrayOutputStream waiting = new ByteArrayOutputStream(LARGE);

        Batches(PrintStream below) {
            this.below = below;
        }

        @Override
        public synchronized void write(int one) {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int length) {
            if (waiting.size() == 0) {
                CLOCK.schedule(this::send, MOMENT_MS, TimeUnit.MILLISECONDS);
            }
            waiting.write(bytes, from, length);
            if (waiting.size() >= LARGE) {
                send();
            }
        }

        synchronized void send() {
            if (waiting.size() == 0) {
                return;
            }
            var bytes = waiting.toByteArray();
            waiting.reset();
            // The end of the last line comes by itself, as from the kernel that E2B has: callers compare what they get first.
            int end = bytes.length > 1 && bytes[bytes.length - 1] == '\n' ? bytes.length - 1 : bytes.length;
            below.write(bytes, 0, end);
            below.flush();
            below.write(bytes, end, bytes.length - end);
            below.flush();
        }
    }

    private static final class Builder extends JavaKernelBuilder<Builder, InterpreterJava> {
        @Override
        public InterpreterJava build() {
            var evaluator = buildCodeEvaluator(buildName());
            return new InterpreterJava(buildLanguageInfo(), buildJupyterIO(StandardCharsets.UTF_8), buildCommManager(),
                    buildRenderer(), buildMagicsResolver(buildMagicTranspiler()), buildMagicsRegistry(),
                    buildJShell(evaluator), evaluator);
        }
    }
}

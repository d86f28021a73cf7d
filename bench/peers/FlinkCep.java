import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;

import com.sun.management.OperatingSystemMXBean;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.Encoder;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.SimpleStreamFormat;
import org.apache.flink.connector.file.src.reader.StreamFormat;
import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;

/**
 * W1, W2 and W3 on Apache Flink's own Java CEP: the DataStream API with org.apache.flink.cep.
 *
 * <p>java FlinkCep WORKLOAD PARALLELISM EVENTS FEW RESULTS [CHECKPOINT_MS]
 *
 * <p>EVENTS and FEW are folders of binary files, one for each reader, in the order of time. A first job over EVENTS lets
 * Java compile what it runs; then one over FEW is what a job costs before it does anything; then a second one over
 * EVENTS is the one that counts; its matches are in RESULTS/took/matches. Prints one JSON object: seconds by the wall
 * clock and of the processor.
 */
public final class FlinkCep {
    /** One event: 21 bytes on disk, little endian, in this order. */
    public static class Typed {
        public long ms;
        public int key;
        public byte kind;
        public double v;
    }

    /** One match: key, time of its first event, time at which it is complete. */
    public static class Match {
        public int key;
        public long began;
        public long ended;

        public Match() {}

        Match(int key, long began, long ended) {
            this.key = key;
            this.began = began;
            this.ended = ended;
        }
    }

    private static final int EVENT_BYTES = 21;

    public static void main(String[] arguments) throws Exception {
        Path events = Path.of(arguments[2]);
        Path few = Path.of(arguments[3]);
        StringBuilder told = new StringBuilder("{\"workload\": \"" + arguments[0] + "\"");
        for (String job : List.of("warm_up", "start_up", "took")) {
            Path input = job.equals("start_up") ? few : events;
            double cpu = cpuSeconds();
            double wall = run(arguments, input, Path.of(arguments[4]).resolve(job));
            told.append(String.format(", \"%s_s\": %.6f, \"%s_cpu_s\": %.6f", job, wall, job, cpuSeconds() - cpu));
        }
        System.out.println(told.append("}"));
    }

    private static double cpuSeconds() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    /** One job over all files of a folder; seconds from submission to its end. */
    private static double run(String[] arguments, Path events, Path results) throws Exception {
        String workload = arguments[0];
        int parallelism = Integer.parseInt(arguments[1]);
        long checkpointMs = arguments.length > 5 ? Long.parseLong(arguments[5]) : 0;
        Configuration config = new Configuration();
        config.setString("pipeline.object-reuse", "true");
        config.setString("pipeline.generic-types", "false"); // fails if anything falls back to Kryo
        config.setString("state.backend.type", "hashmap");
        config.setString("pekko.ask.timeout", "10 min"); // a busy machine is not a dead one
        config.setString("heartbeat.timeout", "600000");
        if (checkpointMs > 0) {
            config.setString("execution.checkpointing.interval", checkpointMs + " ms");
            config.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
            config.setString("execution.checkpointing.storage", "filesystem");
            config.setString("execution.checkpointing.dir", results.resolve("checkpoints").toUri().toString());
        }
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(parallelism, config);
        FileSource<Typed> source =
                FileSource.forRecordStreamFormat(
                                new Format(), new org.apache.flink.core.fs.Path(events.toUri()))
                        .build();
        WatermarkStrategy<Typed> inOrder =
                WatermarkStrategy.<Typed>forMonotonousTimestamps().withTimestampAssigner((event, before) -> event.ms);
        DataStream<Typed> all = flink.fromSource(source, inOrder, "events");
        SingleOutputStreamOperator<Match> matches =
                switch (workload) {
                    case "W1" -> w1(all);
                    case "W2" -> w2(all);
                    case "W3" -> w3(all);
                    default -> throw new IllegalArgumentException("there is no workload " + workload);
                };
        Path folder = results.resolve("matches");
        if (checkpointMs > 0) {
            var path = new org.apache.flink.core.fs.Path(folder.toUri());
            matches.sinkTo(FileSink.forRowFormat(path, (Encoder<Match>) FlinkCep::encode).build());
        } else {
            matches.sinkTo(new PlainFiles(folder.toString()));
        }
        long began = System.nanoTime();
        flink.execute(workload);
        return (System.nanoTime() - began) / 1e9;
    }

    // Each filters what its pattern ignores before the match, as the SQL does. Flink's within excludes its end and ours
    // includes it; times are whole milliseconds, so one more of them gives the same matches.

    private static SingleOutputStreamOperator<Match> w1(DataStream<Typed> all) {
        Pattern<Typed, ?> pattern =
                Pattern.<Typed>begin("a").where(is('A')).next("b").where(is('B')).within(Duration.ofMillis(10_001));
        DataStream<Typed> some = all.filter(event -> event.kind == 'A' || event.kind == 'B');
        return CEP.pattern(some.keyBy(event -> event.key), pattern).process(new UntilB());
    }

    private static SingleOutputStreamOperator<Match> w2(DataStream<Typed> all) {
        Pattern<Typed, ?> pattern =
                Pattern.<Typed>begin("a")
                        .where(is('A'))
                        .next("c")
                        .where(new Rising())
                        .oneOrMore()
                        .consecutive()
                        .next("b")
                        .where(is('B'))
                        .within(Duration.ofMillis(30_001));
        DataStream<Typed> some = all.filter(event -> event.kind != 'D');
        return CEP.pattern(some.keyBy(event -> event.key), pattern).process(new UntilB());
    }

    private static SingleOutputStreamOperator<Match> w3(DataStream<Typed> all) {
        Pattern<Typed, ?> pattern =
                Pattern.<Typed>begin("a")
                        .where(is('A'))
                        .notFollowedBy("b")
                        .where(is('B'))
                        .within(Duration.ofMillis(5_001));
        DataStream<Typed> some = all.filter(event -> event.kind == 'A' || event.kind == 'B');
        return CEP.pattern(some.keyBy(event -> event.key), pattern).process(new WithoutB());
    }

    private static SimpleCondition<Typed> is(char kind) {
        return SimpleCondition.of(event -> event.kind == kind);
    }

    /** A C whose v is above that of the C before it in this match. */
    private static final class Rising extends IterativeCondition<Typed> {
        @Override
        public boolean filter(Typed event, Context<Typed> context) throws Exception {
            if (event.kind != 'C') {
                return false;
            }
            double last = Double.NEGATIVE_INFINITY;
            for (Typed before : context.getEventsForPattern("c")) {
                last = before.v;
            }
            return event.v > last;
        }
    }

    /** From the first event of a match to its B. */
    private static final class UntilB extends PatternProcessFunction<Typed, Match> {
        @Override
        public void processMatch(Map<String, List<Typed>> events, Context context, Collector<Match> out) {
            Typed first = events.get("a").get(0);
            out.collect(new Match(first.key, first.ms, events.get("b").get(0).ms));
        }
    }

    /** From an A to the time until which its B was waited for. */
    private static final class WithoutB extends PatternProcessFunction<Typed, Match> {
        @Override
        public void processMatch(Map<String, List<Typed>> events, Context context, Collector<Match> out) {
            Typed first = events.get("a").get(0);
            out.collect(new Match(first.key, first.ms, first.ms + 5_000));
        }
    }

    /** Reads events from a file: nothing but the bytes of their fields. */
    private static final class Format extends SimpleStreamFormat<Typed> {
        @Override
        public StreamFormat.Reader<Typed> createReader(Configuration config, FSDataInputStream file) {
            DataInputStream bytes = new DataInputStream(new BufferedInputStream(file, 1 << 20));
            byte[] block = new byte[EVENT_BYTES];
            ByteBuffer fields = ByteBuffer.wrap(block).order(ByteOrder.LITTLE_ENDIAN);
            return new StreamFormat.Reader<>() {
                @Override
                public Typed read() throws IOException {
                    try {
                        bytes.readFully(block);
                    } catch (EOFException end) {
                        return null;
                    }
                    Typed event = new Typed();
                    event.ms = fields.getLong(0);
                    event.key = fields.getInt(8);
                    event.kind = fields.get(12);
                    event.v = fields.getDouble(13);
                    return event;
                }

                @Override
                public void close() throws IOException {
                    bytes.close();
                }
            };
        }

        @Override
        public TypeInformation<Typed> getProducedType() {
            return TypeInformation.of(Typed.class);
        }
    }

    /** A match as three little-endian numbers of 8 bytes. */
    private static void encode(Match match, OutputStream out) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(24).order(ByteOrder.LITTLE_ENDIAN);
        bytes.putLong(match.key).putLong(match.began).putLong(match.ended);
        out.write(bytes.array());
    }

    /** A file for each task, written through a buffer: no checkpoint, no commit, nothing to be renamed. */
    private static final class PlainFiles implements Sink<Match> {
        private final String folder;

        PlainFiles(String folder) {
            this.folder = folder;
        }

        @Override
        public SinkWriter<Match> createWriter(WriterInitContext context) throws IOException {
            Path path = Path.of(folder, "part-" + context.getTaskInfo().getIndexOfThisSubtask());
            Files.createDirectories(path.getParent());
            OutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(path), 1 << 20));
            return new SinkWriter<>() {
                @Override
                public void write(Match match, Context now) throws IOException {
                    encode(match, out);
                }

                @Override
                public void flush(boolean endOfInput) throws IOException {
                    out.flush();
                }

                @Override
                public void close() throws IOException {
                    out.close();
                }
            };
        }
    }
}

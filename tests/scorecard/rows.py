"""The rows of the scorecard: what is measured, by which commands, and when a row is met."""

import dataclasses

TESTS = "build/release/tests/"
CBT = "build/release/bin/cbt"
SHIM = TESTS + "faults/libcbt_fault_shim.so"
MESSAGES = TESTS + "interop"
SLOW_READERS = "build/release/bin/slow_readers"


@dataclasses.dataclass
class Row:
    number: int
    title: str
    target: str  # in words
    commands: list
    targets: list  # (figure, ==, >= or <=, number)
    words: str  # the text shown, with {figures}
    # figure: pattern of the figures that it sums up
    sums: dict = dataclasses.field(default_factory=dict)
    differences: dict = dataclasses.field(default_factory=dict)  # figure: (minuend, subtrahend)
    is_slow: bool = False  # takes more than two or three minutes
    same_run_as: int = 0  # judged by that row's run


def scaled(scale, *commands):
    return [f"CBT_TEST_SCALE={scale} {command}" for command in commands]


def tests(*files):
    """The tests of tests/<room>/<name>_test.cc, run by each room's program."""
    return [TESTS + (file.removeprefix("faults/") if file.startswith("faults/") else f"{file.split('/')[0]}_tests --file={file}")
            for file in files]


def python(script, *arguments):
    return " ".join(["/usr/bin/python3 -B", script, *arguments])


FAULTS = [python(f"tests/faults/{name}.py", CBT, "build/release/bin/tracker_driver", SHIM)
          for name in ("faults_test", "read_faults_test", "network_faults_test")]

ROWS = [
    Row(1, "changed blocks missed, against a byte oracle", "0 in 1,000,000 volumes",
        scaled(40, *tests("core/truth_test")),
        [("r1_blocks_missed", "==", 0), ("r1_malformed_streams", "==", 0), ("r1_cases", ">=", 10**6)],
        "{r1_blocks_missed} of {r1_blocks_compared} blocks in {r1_cases} volumes", is_slow=True),
    Row(2, "boundaries: containers of 4095 to 4097, keys, powers of two, last partial blocks, the edge of int64",
        "every operation on each", tests("map/boundary_test"), [("r2_checks_failed", "==", 0), ("r2_boundaries", ">=", 3000)],
        "{r2_boundaries} boundaries, {r2_operations} operations, {r2_checks_failed} of {r2_checks} checks failed"),
    Row(3, "vector code says what scalar code says", "0 differences; lengths to 8192 bytes, every alignment, guard pages",
        scaled(8, *tests("simd/lengths_test")) + tests("simd/tuples/check_tuples_test", "simd/compare_blocks_test", "simd/containers_test", "simd/count_bits_test", "simd/tuples/decode_tuples_test", "simd/tuples/digest_tuples_test",
                                                  "simd/tuples/encode_tuples_test", "simd/extract_runs_test", "simd/list_blocks_test", "simd/load_bits_test", "simd/tuples/sorted_extents_test", "simd/tuples/split_extents_test"),
        [("r3_differences", "==", 0), ("r3_inputs", ">=", 10**7)], "{r3_differences} differences in {r3_inputs} inputs",
        {"r3_differences": r"r3_\w+_(differences|failed)", "r3_inputs": r"r3_\w+_inputs"}),
    Row(4, "a stream resumed anywhere is the rest of the whole", "every byte of volumes to 1 MiB, 100,000 offsets in 16 TiB",
        scaled(8, *tests("core/resume_test"), TESTS + "source_tests --gtest_filter='*SparseImages'"),
        [("r4_wrong", "==", 0), ("r4_offsets", ">=", 10**6)], "{r4_wrong} wrong of {r4_offsets}",
        {"r4_wrong": r"r4_\w+_wrong", "r4_offsets": r"r4_\w+_offsets"}, is_slow=True),
    Row(5, "a stream cut anywhere and resumed is whole", "after every message; every byte from client to server, every second one on a relay's wires",
        scaled(16, *tests("rpc/server/wire_faults_test")),
        [("r5_wrong", "==", 0), ("r5_tried", ">=", 1000)], "{r5_wrong} wrong of {r5_tried}",
        {"r5_wrong": r"r5_\w+_wrong", "r5_tried": r"r5_\w+_tried"}, is_slow=True),
    Row(6, "runs of fuzzers without a finding", "none in a minute each; 10,000,000 for codecs, 1,000,000 for others by `make fuzz-long`",
        ["make fuzz", "fuzz/run.sh build/fuzz/bin build/fuzz/corpus build/fuzz/kept 60"], [("r6_findings", "==", 0)],
        "{r6_findings} findings in {r6_executions} runs, 60 s for each target",
        {"r6_findings": r"r6_\w+_findings", "r6_executions": r"r6_\w+_executions"}, is_slow=True),
    Row(7, "flipped bits found", "all single, 1,000,000 double ones; of whatever carries a checksum or a seal",
        scaled(50, *tests("map/damage_test", "rpc/contract/page_token_test")), [("r7_missed", "==", 0), ("r7_tried", ">=", 10**6)],
        "{r7_missed} missed of {r7_tried}", {"r7_missed": r"r7_\w+_missed", "r7_tried": r"r7_\w+_tried"}),
    Row(8, "cut, lengthened, swapped and spliced files found", "all", [], [("r8_missed", "==", 0), ("r8_tried", ">=", 50_000)],
        "{r8_missed} missed of {r8_tried}", {"r8_missed": r"r8_\w+_missed", "r8_tried": r"r8_\w+_tried"}, same_run_as=7),
    Row(9, "lies with a right checksum refused", "all of 50 by hand, 1,000,000 made at random", scaled(50, *tests("map/lies_test")),
        [("r9_generated_wrong", "==", 0), ("r9_not_refused", "==", 0), ("r9_generated", ">=", 10**6), ("r9_hand_made_lies", ">=", 50)],
        "{r9_hand_made_lies} by hand, {r9_not_refused} believed; {r9_generated} at random, {r9_generated_wrong} believed",
        differences={"r9_not_refused": ("r9_hand_made_lies", "r9_hand_made_lies_refused")}),
    Row(10, "allocations that fail", "error or bad_alloc at the edge, no leak", tests("faults/memory_test", "faults/memory_rpc_test", "faults/memory_source_test", "faults/memory_transport_test"),
        [("r10_wrong_all", "==", 0), ("r10_failed", ">=", 1000)], "{r10_wrong_all} wrong of {r10_failed}",
        {"r10_wrong_all": "r10_wrong(_rpc|_source|_transport)?", "r10_failed": "r10_allocations_failed(_rpc|_source|_transport)?"}),
    Row(11, "system calls that fail, are short or interrupted", "right or an error: every call of readers and writers, a sample of what has threads", scaled(2, *FAULTS),
        [("r11_wrong", "==", 0), ("r11_points", ">=", 1000)], "{r11_wrong} wrong of {r11_points}", is_slow=True),
    Row(12, "processes killed while they write", "2,000: old or new, never torn", [], [("r12_torn", "==", 0), ("r12_kills", ">=", 2000)],
        "{r12_torn} torn of {r12_kills}", same_run_as=11),
    Row(13, "losses of power", "every prefix of what was not synced, subsets: all of a few writes, of many a sample", scaled(4, *tests("faults/power_loss_test")),
        [("r13_wrong", "==", 0), ("r13_states", ">=", 1000)], "{r13_wrong} wrong of {r13_states} states"),
    Row(14, "what a reader that stops costs (KiB; private memory)", "64 and a message, for 1,000 streams; others keep 90 % of their speed",
        [python("tests/soak/load.py", CBT, MESSAGES, SLOW_READERS, "--cycles 0")],
        [("r14_streams", ">=", 1000), ("r14_few_messages_a_second", ">=", 950), ("r14_all_messages_a_second", ">=", 950), ("r14_few_over", "<=", 64), ("r14_all_over", "<=", 64), ("r14_few_others_reading_percent", ">=", 90),
         ("r14_all_others_reading_percent", ">=", 90),
         ("r14_few_others_stopped_percent", ">=", 90), ("r14_all_others_stopped_percent", ">=", 90)],
        "{r14_few_growth_kib_per_stream} for messages of {r14_few_message_kib}, {r14_all_growth_kib_per_stream} for {r14_all_message_kib}; others at "
        "{r14_few_others_reading_percent} % of their speed beside readers of {r14_few_message_kib} KiB a second each ({r14_all_others_reading_percent} % beside readers of "
        "{r14_all_message_kib}), at {r14_few_others_stopped_percent} and {r14_all_others_stopped_percent} % beside them when they have stopped; medians of five rounds",
        differences={"r14_few_over": ("r14_few_growth_kib_per_stream", "r14_few_message_kib"),
                     "r14_all_over": ("r14_all_growth_kib_per_stream", "r14_all_message_kib")}, is_slow=True),
    Row(15, "what clients leave that stall, cancel or vanish", "nothing: slots, descriptors, memory (1 %)",
        [python("tests/soak/load.py", CBT, MESSAGES, SLOW_READERS, "--streams 0")],
        [("r15_slots_left", "==", 0), ("r15_descriptors_change", "<=", 0), ("r15_rss_change_percent", "<=", 1)],
        "{r15_cycles} cycles: {r15_slots_left} slots, {r15_descriptors_change} descriptors, memory {r15_rss_change_percent} %", is_slow=True),
    Row(16, "shutdown under load", "no OK on a stream that was cut, no hang, 500 streams in 50 rounds", scaled(10, *tests("rpc/server/drain_test")),
        [("r16_cut_with_ok", "==", 0), ("r16_hangs", "==", 0), ("r16_streams", ">=", 25_000)], "{r16_cut_with_ok} OK, {r16_hangs} hangs in {r16_streams} streams",
        {"r16_cut_with_ok": r"r16_\w+_ok_on_truncated", "r16_hangs": r"r16_\w+_hangs", "r16_streams": r"r16_\w+_streams_drained"}, is_slow=True),
    Row(17, "address, undefined-behaviour and thread sanitizers", "nothing in the suite (but for what injects faults into system calls, and loads)", ["make asan", "make tsan"],
        [("tests_failed", "==", 0)], "{tests_failed} of {tests_run} test programs", is_slow=True),
    Row(18, "lines and branches reached (%)", "95 and 90; decoders and cursors 100",
        ["make coverage"], [("r18_core_lines", ">=", 95), ("r18_core_branches", ">=", 90), ("r18_adapters_lines", ">=", 95),
                            ("r18_adapters_branches", ">=", 90), ("r18_decoders_lines", ">=", 100), ("r18_decoders_branches", ">=", 100)],
        "core {r18_core_lines} and {r18_core_branches}, adapters {r18_adapters_lines} and {r18_adapters_branches}, decoders and "
        "cursors {r18_decoders_lines} and {r18_decoders_branches}", is_slow=True),
    Row(19, "small faults that tests notice (%)", "95 of 200", ["make mutation"], [("r19_percent", ">=", 95), ("r19_mutants", ">=", 200)],
        "{r19_percent} of {r19_mutants}", is_slow=True),
    Row(20, "rules of the contract with a test", "all", [python("tests/lint/conformance.py")],
        [("r20_unmapped", "==", 0)], "{r20_rules_mapped} of {r20_rules}, of the checker's {r20_checker_rules_mapped} of {r20_checker_rules}",
        differences={"r20_unmapped": ("r20_rules", "r20_rules_mapped")}),
    Row(21, "canaries of secrets in logs, metrics, statuses", "0", [python("tests/cbt/secrets_test.py", CBT)], [("r21_hits", "==", 0)],
        "{r21_hits}"),
    Row(22, "differences between \"is not there\" and \"you may not\"", "0 in 1,000 pairs", scaled(4, *tests("rpc/access/existence_test")),
        [("r22_differences", "==", 0), ("r22_pairs", ">=", 1000)],
        "{r22_differences} in {r22_pairs} pairs; medians differ by {r22_median_difference_percent} %"),
    Row(23, "files of every released format read and written to the bit", "all", tests("map/golden_test"), [("r23_wrong", "==", 0)],
        "{r23_wrong} wrong of {r23_files}"),
    Row(24, "bytes reported for each byte of changed blocks", "1 exactly; rounded: within the bound of the granularity", [],
        [("r24_exact_ratio", "==", 1), ("r24_streams_over_their_bound", "==", 0)],
        "{r24_exact_ratio}; {r24_streams_over_their_bound} of {r24_rounded_streams} rounded streams over their bound", is_slow=True,
        same_run_as=1),
    Row(25, "restored images that are not their source", "0 in 200 rounds",
        scaled(10, f"CBT_FAULT_SHIM=$PWD/{SHIM} " + python("tests/cbt/restore_test.py", CBT)),
        [("r25_wrong", "==", 0), ("r25_rounds", ">=", 200)], "{r25_wrong} of {r25_restores} restores in {r25_rounds} rounds", is_slow=True),
    Row(26, "planted faults that turn their test red", "all, one for each disaster", ["make planted"],
        [("r26_green", "==", 0), ("r26_planted", ">=", 37)], "{r26_turned_red} of {r26_planted}",
        differences={"r26_green": ("r26_planted", "r26_turned_red")}, is_slow=True),
    Row(27, "an hour of mixed load: stalls, kills, resumes", "every client exact, memory and descriptors flat", ["make soak"],
        [("soak_wrong", "==", 0), ("soak_seconds", ">=", 3600)],
        "{soak_streams} streams, {soak_interrupted} interrupted, {soak_resumed} resumed, {soak_kills} kills: {soak_wrong} wrong", is_slow=True),
]

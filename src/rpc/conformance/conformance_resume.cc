// Rules about starting offsets, and about streams that clients abandon.
#include <algorithm>
#include <limits>
#include <thread>

#include "rpc/client/connect.h"
#include "rpc/conformance/conformance_checker.h"

namespace cbt::rpc {

using std::chrono::milliseconds;

void ConformanceChecker::CheckOffsets() {
  Rule("offset-negative", "a negative starting offset is OUT_OF_RANGE", [&] {
    for (const int64_t offset : {int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
      Finding finding = ExpectCode(StrCat("starting_offset ", offset), AskFrom(offset),
                                   {StatusCode::kOutOfRange});
      if (finding.result != RuleResult::kPass) return finding;
    }
    return Pass();
  });
  Rule("offset-past-capacity", "a starting offset greater than the capacity is OUT_OF_RANGE", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    if (full_.messages.empty()) return Skip("the capacity is unknown");
    std::set<int64_t> offsets = {std::numeric_limits<int64_t>::max()};
    if (full_.capacity() < kMaxCapacity) {
      offsets.insert(static_cast<int64_t>(full_.capacity()) + 1);
    }
    for (const int64_t offset : offsets) {
      if (static_cast<uint64_t>(offset) == full_.capacity()) continue;
      Finding finding = ExpectCode(StrCat("starting_offset ", offset), AskFrom(offset),
                                   {StatusCode::kOutOfRange});
      if (finding.result != RuleResult::kPass) return finding;
    }
    return Pass();
  });
  Rule("offset-at-capacity", "a starting offset equal to the capacity is OK, without tuples", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    if (full_.messages.empty()) return Skip("the capacity is unknown");
    const ProbeAnswer answer = AskFrom(static_cast<int64_t>(full_.capacity()));
    if (answer.ok() && answer.tuples.empty()) return Pass();
    // A last block that reaches past the capacity ends after it.
    if (answer.ok() && answer.tuples.size() == 1 && !full_.tuples.empty() &&
        answer.tuples[0] == full_.tuples.back() && full_.tuples.back().end() > full_.capacity()) {
      return Pass();
    }
    return Fail(Text(answer));
  });
  Rule("empty-stream", "a stream without tuples still carries type and capacity", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    if (full_.messages.empty()) return Skip("the capacity is unknown");
    const ProbeAnswer answer = AskFrom(static_cast<int64_t>(full_.capacity()));
    if (!answer.ok()) return Skip("see offset-at-capacity");
    if (answer.messages.empty()) return Fail("no message");
    if (answer.messages.front().capacity != full_.capacity() ||
        answer.messages.front().type != full_.messages.front().type) {
      return Fail("type or capacity differ from the full stream's");
    }
    return Pass();
  });
}

std::vector<size_t> ConformanceChecker::CutPoints() const {
  const size_t count = full_.tuples.size();
  std::set<size_t> cuts;
  if (count == 0) return {};
  const size_t most = std::max<size_t>(options_.cut_points, 2);
  for (size_t i = 0; i < most; ++i) cuts.insert(i * (count - 1) / (most - 1));
  return {cuts.begin(), cuts.end()};
}

Finding ConformanceChecker::CheckFrom(uint64_t offset, int64_t max_results) const {
  const std::string what = StrCat("starting_offset ", offset,
                                  max_results == 0 ? "" : StrCat(", max_results ", max_results));
  const ProbeAnswer answer = AskFrom(static_cast<int64_t>(offset), max_results);
  if (!answer.ok()) return Fail(StrCat(what, ": ", Text(answer)));
  if (!answer.tuples.empty() && answer.tuples.front().end() <= offset) {
    return Fail(
        StrCat(what, ": the first tuple is ", Text(answer.tuples.front()), ", which ends before"));
  }
  if (const Finding order = CheckOrder(answer); order.result == RuleResult::kFail) {
    return Fail(StrCat(what, ": ", order.evidence));
  }
  for (const ProbedMessage& message : answer.messages) {
    if (message.capacity != full_.capacity() || message.type != full_.messages.front().type) {
      return Fail(StrCat(what, ": different type or capacity"));
    }
  }
  if (const auto difference = Difference(Coverage(full_.tuples, offset, full_.capacity()),
                                         Coverage(answer.tuples, offset, full_.capacity()))) {
    return Fail(StrCat(what, ": ", *difference));
  }
  return Pass();
}

void ConformanceChecker::CheckResumption() {
  const TupleList& tuples = full_.tuples;
  Rule("resume-cut-points", "resuming at the end of a tuple returns exactly the rest",
       [&] { return CheckCuts([&](size_t i) { return std::optional(tuples[i].end()); }); });
  Rule("resume-before-end", "resuming one byte before a tuple's end repeats that tuple",
       [&] { return CheckCuts([&](size_t i) { return std::optional(tuples[i].end() - 1); }); });
  Rule("resume-in-gap", "resuming between two tuples returns the next one", [&] {
    return CheckCuts([&](size_t i) -> std::optional<uint64_t> {
      const uint64_t before = i == 0 ? 0 : tuples[i - 1].end();
      if (tuples[i].offset - before < 2) return std::nullopt;
      return before + (tuples[i].offset - before) / 2;
    });
  });
  Rule("resume-unaligned", "resuming at an odd byte inside a tuple loses nothing", [&] {
    return CheckCuts([&](size_t i) -> std::optional<uint64_t> {
      if (tuples[i].length < 2) return std::nullopt;
      return tuples[i].offset + tuples[i].length / 2 + (tuples[i].length > 4 ? 1 : 0);
    });
  });
  Rule("resume-other-max-results", "resuming with another max_results returns the same rest",
       [&] { return CheckCuts([&](size_t i) { return std::optional(tuples[i].end()); }, 3); });
  Rule("resume-proof", "the proof of a resumed stream matches its tuples", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    if (tuples.empty()) return Skip("the stream has no tuples");
    const uint64_t offset = std::min(tuples[tuples.size() / 2].end(), full_.capacity());
    return CheckProofOf(AskFrom(static_cast<int64_t>(offset)), offset);
  });
}

void ConformanceChecker::CheckEnds() {
  Rule("deadline", "a stream that hits its deadline ends with an error or is complete", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    for (const int wait : {1, 2, 5, 10, 20, 100}) {
      ProbeLimits limits = Limits();
      limits.timeout = milliseconds(wait);
      const ProbeAnswer answer = AskBytes(EncodeRequest(method(), Request()), limits);
      if (answer.ok() && !SameTuples(answer.tuples, full_.tuples)) {
        return Fail(StrCat("deadline ", wait, " ms: ", Text(answer), ", the full answer has ",
                           full_.tuples.size()));
      }
    }
    return Pass();
  });
  Rule("cancel", "after a cancelled stream the next one is complete", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    for (int i = 0; i < 5; ++i) {
      ProbeLimits limits = Limits();
      limits.cancel_after = 1;
      MetadataRequest request = Request();
      request.max_results = 1;
      AskBytes(EncodeRequest(method(), request), limits);
    }
    const ProbeAnswer answer = AskFrom(0);
    if (answer.ok() && SameTuples(answer.tuples, full_.tuples)) return Pass();
    return Fail(Text(answer));
  });
  Rule("stalled-reader", "a client that does not read does not hold up others", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    std::vector<std::thread> stalled;
    for (size_t i = 0; i < options_.concurrent; ++i) {
      stalled.emplace_back([this] {
        ProbeLimits limits = Limits();
        limits.stall = options_.stall;
        limits.cancel_after = 2;
        const auto channel = ConnectForOneStream(address_, options_.request.tls);
        if (!channel.ok()) return;
        // Retries if refused: the server may still be handling a call of the previous rule.
        const auto end = std::chrono::steady_clock::now() + options_.stall / 2;
        while (
            Probe(**channel, contract_, method().path, EncodeRequest(method(), Request()), limits)
                .messages.empty() &&
            std::chrono::steady_clock::now() < end) {
          std::this_thread::sleep_for(options_.stall / 20);
        }
      });
    }
    std::this_thread::sleep_for(options_.stall / 2);
    const ProbeAnswer answer = AskFrom(0);
    for (std::thread& thread : stalled) thread.join();
    if (answer.ok() && SameTuples(answer.tuples, full_.tuples)) return Pass();
    return Fail(Text(answer));
  });
}

}  // namespace cbt::rpc

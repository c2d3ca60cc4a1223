// Rules of the paged contract.
#include <algorithm>

#include "rpc/client/paged_inbound.h"
#include "rpc/conformance/conformance_checker.h"

namespace cbt::rpc {

ProbeAnswer ConformanceChecker::AllPages(int64_t most, std::string token, std::string* second_token,
                                         std::string& evidence) const {
  ProbeAnswer all;
  MetadataRequest request = Request();
  request.max_results = most;
  request.page_token = std::move(token);
  const size_t most_idle = std::min(kMaxIdlePages, options_.max_tuples);
  size_t idle = 0;
  for (size_t pages = 0;; ++pages) {
    const ProbeAnswer page = Ask(request);
    if (!page.ok()) {
      all.status = page.status.ok() ? page.decoding : page.status;
      return all;
    }
    for (ProbedMessage message : page.messages) {
      message.first = all.tuples.size();
      all.messages.push_back(message);
    }
    if (most > 0 && page.tuples.size() > static_cast<uint64_t>(most)) {
      evidence = StrCat("max_entries ", most, ": a page of ", page.tuples.size());
    }
    for (size_t i = 0; i < page.tuples.size(); ++i) all.tuples.push_back(page.tuples[i]);
    if (page.next_token.empty()) return all;
    if (pages == 0 && second_token != nullptr) *second_token = page.next_token;
    // Two empty pages that name each other never end, like one that names itself.
    idle = page.tuples.empty() ? idle + 1 : 0;
    if (page.next_token == request.page_token || all.tuples.size() > options_.max_tuples ||
        idle > most_idle) {
      evidence = "the pages never end";
      return all;
    }
    request.page_token = page.next_token;
  }
}

void ConformanceChecker::CheckPages() {
  std::string unlimited;
  pages_ = AllPages(0, "", nullptr, unlimited);
  Rule("pages-order", "blocks ascend from page to page", [&] { return CheckOrder(pages_); });
  const int64_t half = std::max<int64_t>(1, static_cast<int64_t>(pages_.tuples.size() / 2));
  std::string second;
  std::string evidence;
  const ProbeAnswer halves = AllPages(half, "", &second, evidence);
  Rule("pages-capacity", "every page has the same volume size", [&] {
    if (pages_.messages.empty()) return Skip("no page was received");
    if (pages_.capacity() == 0) return Fail("the first page has no size, or 0");
    const ProbeAnswer* const answers[] = {&pages_, &halves};
    for (const ProbeAnswer* answer : answers) {
      for (size_t i = 0; i < answer->messages.size(); ++i) {
        if (answer->messages[i].capacity == pages_.capacity()) continue;
        return Fail(StrCat("max_entries ", answer == &pages_ ? 0 : half, ": page ", i, " has ",
                           answer->messages[i].capacity, ", the first page of all ",
                           pages_.capacity()));
      }
    }
    return Pass();
  });
  Rule("max-entries", "max_entries limits each page and does not change the whole", [&] {
    if (!pages_.ok()) return Fail(Text(pages_));
    if (!unlimited.empty()) return Fail(StrCat("max_entries 0: ", unlimited));
    for (const int64_t most : {int64_t{1}, int64_t{3}, int64_t{1000}}) {
      // One block per page is slow if there are many.
      if (pages_.tuples.size() / static_cast<uint64_t>(most) > 2000) continue;
      std::string wrong;
      const ProbeAnswer all = AllPages(most, "", nullptr, wrong);
      if (!wrong.empty()) return Fail(wrong);
      if (!all.ok()) return Fail(StrCat("max_entries ", most, ": ", Text(all)));
      if (const auto difference = Difference(Coverage(pages_.tuples, 0, pages_.capacity()),
                                             Coverage(all.tuples, 0, pages_.capacity()))) {
        return Fail(StrCat("max_entries ", most, ": ", *difference));
      }
    }
    return Pass();
  });
  Rule("token-again", "a page token can be used again", [&] {
    if (second.empty()) return Skip("the answer fits into one page");
    std::string wrong;
    const ProbeAnswer first = AllPages(half, second, nullptr, wrong);
    const ProbeAnswer again = AllPages(half, second, nullptr, wrong);
    if (first.ok() && again.ok() && SameTuples(first.tuples, again.tuples)) return Pass();
    return Fail(StrCat("first ", Text(first), ", then ", Text(again)));
  });
  Rule("token-unknown", "a page token that the server did not issue is ABORTED", [&] {
    MetadataRequest request = Request();
    request.page_token = "cbt-conform-no-such-token";
    return ExpectCode("an unknown token", Ask(request), {StatusCode::kAborted});
  });
  Rule("token-foreign", "a page token of another request is ABORTED", [&] {
    if (second.empty()) return Skip("the answer fits into one page");
    if (!options_.request.base_snapshot_id.has_value()) return Skip("needs a base snapshot");
    MetadataRequest request = Request();
    request.page_token = second;
    if (delta_) {
      request.base_snapshot_id.reset();
    } else {
      request.base_snapshot_id = options_.request.base_snapshot_id;
    }
    return ExpectCode("another request's token", Ask(request), {StatusCode::kAborted});
  });
}

}  // namespace cbt::rpc

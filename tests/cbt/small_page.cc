// small_page CHAIN MAX_BYTES: prints the page of a chain with less room than the command allows, so
// that a short history becomes as coarse as a very long one.
#include <cstdio>
#include <string>
#include <vector>

#include "cbt/change_chain.h"
#include "programs/cbt/history/history_html.h"

int main(int count, char** arguments) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  if (given.size() != 2) return 2;
  const auto chain = cbt::ChangeChain::Open(given[0], cbt::ChangeChain::Access::kRead);
  if (!chain.ok()) return 1;
  const cbt::cli::History history(**chain);
  auto page = cbt::cli::ReadHistoryPage(history);
  if (!page.ok()) return 1;
  const std::string html = cbt::cli::HistoryHtml(history, *page, std::stoul(given[1]));
  return std::fwrite(html.data(), 1, html.size(), stdout) == html.size() ? 0 : 1;
}

#include "programs/cbt/commands/chain_show.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_chain.h"
#include "programs/cbt/history/history.h"
#include "programs/cbt/history/history_html.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/output/document.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/status.h"
#include "programs/cbt/support/terminal.h"

namespace cbt::cli {
namespace {

struct ShowChainArguments {
  std::string chain;
  std::string svg;
  std::string html;
  std::string colour = "auto";
  size_t rows = 32;
};

bool WantsColour(const std::string& choice) {
  if (choice != "auto") return choice == "always";
  const char* const no_colour = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe)
  return isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

constexpr size_t kColumns = 64;

// Fewer on a narrow terminal: rows that wrap are no picture.
size_t TextColumns(const History& history) {
  const std::optional<size_t> line = TerminalColumns(STDOUT_FILENO);
  return line.has_value() ? std::min(kColumns, HistoryTextColumns(history, *line)) : kColumns;
}

absl::Status ShowChain(const ShowChainArguments& arguments) {
  const bool svg_to_stdout = IsStdout(arguments.svg);
  const bool html_to_stdout = IsStdout(arguments.html);
  if (svg_to_stdout && html_to_stdout) {
    return UsageError("--html -", "--svg - goes to stdout already; name a file for one of them");
  }
  const absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      ChangeChain::Open(arguments.chain, ChangeChain::Access::kRead);
  if (!chain.ok()) return chain.status();
  const InputFiles inputs({arguments.chain});
  const History history(**chain);
  if (!arguments.html.empty()) {
    absl::StatusOr<HistoryPage> page = ReadHistoryPage(history);
    if (!page.ok()) return page.status();
    absl::Status status = WriteDocument(arguments.html, inputs, HistoryHtml(history, *page));
    if (!status.ok()) return status;
  }
  // Stdout holds one document alone.
  if (html_to_stdout && arguments.svg.empty()) return absl::OkStatus();
  if (!arguments.svg.empty()) {
    const absl::StatusOr<HistoryPicture> picture =
        ReadHistoryPicture(history, arguments.rows, kColumns);
    if (!picture.ok()) return picture.status();
    absl::Status status = WriteDocument(arguments.svg, inputs, HistorySvg(history, *picture));
    if (!status.ok()) return status;
  }
  if (svg_to_stdout || html_to_stdout) return absl::OkStatus();
  const absl::StatusOr<HistoryPicture> picture =
      ReadHistoryPicture(history, arguments.rows, TextColumns(history));
  if (!picture.ok()) return picture.status();
  Output output(STDOUT_FILENO, "stdout");
  output.Append(HistoryText(history, *picture,
                            {.colour = WantsColour(arguments.colour), .glyphs = LocaleGlyphs()}));
  return output.Close();
}

}  // namespace

void AddChainShow(CLI::App& chain, Command& command) {
  CLI::App* const sub =
      chain.add_subcommand("show", "Draw a volume's history: time down, offset across");
  const auto arguments = std::make_shared<ShowChainArguments>();
  sub->add_option("CHAIN", arguments->chain, "Directory of the chain")->required();
  sub->add_option("--svg", arguments->svg,
                  "Also draw into this SVG file; -: to stdout, and no text")
      ->type_name("FILE");
  sub->add_option(
         "--html", arguments->html,
         "Also write a page for a browser, with a row for each snapshot; -: to stdout, and "
         "no text")
      ->type_name("FILE");
  sub->add_option("--rows", arguments->rows,
                  "Maximum number of rows of text and SVG; each may span snapshots")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  sub->add_option("--color", arguments->colour,
                  "auto, always or never; auto: on a terminal, unless NO_COLOR is set")
      ->type_name("WHEN")
      ->check(IsOneOf({"auto", "always", "never"}))
      ->capture_default_str();
  sub->footer(
      "Snapshots have no dates in a chain. Pictures show when the map to each was written into "
      "it.\n"
      "The page needs no network. It shows what changed under the pointer and when, and the size "
      "of "
      "the delta\n"
      "between any two snapshots that are picked.\n"
      "Example: in the terminal, as a picture for a report, and as a page to look around in\n"
      "  cbtctl chain show vol1/history.chain --svg history.svg\n"
      "  cbtctl chain show vol1/history.chain --html history.html");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("chain show", ShowChain(*arguments)); };
  });
}

}  // namespace cbt::cli

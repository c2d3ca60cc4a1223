// Untrusted bytes through what the aggregated API server and its HTTPS sidecar decode: requests of
// HTTP, VolumeSnapshotDelta, the pages of drivers and what asks for them, DriverDiscovery, and the
// ConfigMap of the front proxy. The last byte chooses the decoder.
#include <algorithm>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "cbt/kube/typed_objects.h"
#include "fuzz/support/check.h"
#include "programs/revisions/aggregated/api/delta_page.h"
#include "programs/revisions/aggregated/api/driver_discovery.h"
#include "programs/revisions/aggregated/api_server.h"
#include "programs/revisions/aggregated/discovery_documents.h"
#include "programs/revisions/aggregated/front_proxy.h"
#include "programs/revisions/aggregated/volume_snapshot_delta.h"
#include "programs/revisions/http_server/growing_body.h"
#include "programs/revisions/http_server/request_of.h"

namespace {

using namespace cbt::kube;              // NOLINT(google-build-using-namespace)
using namespace cbt::kube::aggregated;  // NOLINT(google-build-using-namespace)
namespace http = boost::beast::http;

void TryDelta(std::string_view text) {
  const absl::StatusOr<VolumeSnapshotDelta> delta = VolumeSnapshotDelta::Parse(text, "prod");
  if (!delta.ok()) return;
  CBT_FUZZ_CHECK(!delta->target.empty());
  DeltaAnswer answer(*delta, 256, 4096);
  answer.Add({.index = 1});
  const PageHead head = {.block_size = 4096, .volume_size = 1 << 20};
  const std::string json = answer.Finish(head, {.blocks = 1, .next_block = 2}, "v");
  // The answer is JSON, and the next question.
  const absl::StatusOr<VolumeSnapshotDelta> again = VolumeSnapshotDelta::Parse(json, "prod");
  CBT_FUZZ_CHECK(again.ok());
  CBT_FUZZ_CHECK(again->target == delta->target && again->base == delta->base);
  CBT_FUZZ_CHECK(again->offset == delta->offset && again->limit == delta->limit);
  CBT_FUZZ_CHECK(again->secret == delta->secret && again->source_version == "v");
}

void TryPageRequest(std::string_view text) {
  const absl::StatusOr<DeltaPageRequest> request = DeltaPageRequest::Parse(text);
  if (!request.ok()) return;
  const absl::StatusOr<DeltaPageRequest> again = DeltaPageRequest::Parse(request->ToJson());
  CBT_FUZZ_CHECK(again.ok());
  CBT_FUZZ_CHECK(again->ToJson() == request->ToJson());
}

// A page that is taken has what its last line says, in order and within the volume.
void TryPage(std::string_view text) {
  const DeltaPageRequest request = {.target_snapshot_id = "t", .block_size = 4096, .max_blocks = 9};
  PageReader reader(request);
  uint64_t count = 0;
  uint64_t next = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const absl::StatusOr<const PageBlock*> block = reader.Take(text.substr(0, end));
    if (!block.ok()) break;
    if (*block != nullptr) {
      CBT_FUZZ_CHECK((*block)->index >= next);
      CBT_FUZZ_CHECK(reader.head().volume_size.has_value());
      CBT_FUZZ_CHECK((*block)->index <= *reader.head().volume_size / 4096);
      next = (*block)->index + 1;
      ++count;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!reader.Finish().ok()) return;
  CBT_FUZZ_CHECK(count <= 9 && reader.end().blocks == count && reader.end().next_block == next);
}

void TryDiscovery(std::string_view text) {
  const absl::StatusOr<Object> object = Object::Parse(text);
  if (!object.ok()) return;
  const absl::StatusOr<DriverDiscovery> discovery = DriverDiscovery::Decode(*object);
  if (!discovery.ok()) return;
  CBT_FUZZ_CHECK(discovery->endpoint().server.starts_with("https://"));
  const absl::StatusOr<DriverDiscovery> again = DriverDiscovery::Decode(discovery->Encode());
  CBT_FUZZ_CHECK(again.ok());
  CBT_FUZZ_CHECK(again->endpoint() == discovery->endpoint());
  Object written = *object;
  (void)SetReachability(written, {.reachable = true, .reason = "r", .message = "m"}, Time());
  CBT_FUZZ_CHECK(
      !SetReachability(written, {.reachable = true, .reason = "r", .message = "m"}, Time()));
}

void TryFrontProxy(std::string_view text) {
  const absl::StatusOr<Object> object = Object::Parse(text);
  if (!object.ok()) return;
  const absl::StatusOr<ConfigMap> config = ConfigMap::Decode(*object);
  if (config.ok()) (void)FrontProxy::Read(*config);
  // Certificates come from anyone.
  (void)cbt::kube::http_server::ClientAuthorities::Read("x", std::string(text));
}

// With the limits of the server, and as bytes come: in two pieces.
void TryHttp(std::string_view text) {
  http::request_parser<cbt::kube::http_server::GrowingBody> parser;
  parser.header_limit(16 * 1024);
  parser.body_limit(4096);
  parser.eager(true);
  boost::beast::flat_buffer buffer(64 * 1024);
  boost::beast::error_code error;
  for (const std::string_view piece :
       {text.substr(0, text.size() / 2), text.substr(text.size() / 2)}) {
    if (buffer.size() + piece.size() > buffer.max_size()) return;
    const auto room = buffer.prepare(piece.size());
    std::copy(piece.begin(), piece.end(), static_cast<char*>(room.data()));
    buffer.commit(piece.size());
    while (buffer.size() > 0 && !parser.is_done()) {
      const size_t used = parser.put(buffer.data(), error);
      buffer.consume(used);
      if (error == http::error::need_more) break;
      if (error) return;
      if (used == 0) break;
    }
  }
  if (!parser.is_done()) return;
  const auto request = cbt::kube::http_server::HeadOf(parser.get());
  request->body = std::move(parser.get().body());
  CBT_FUZZ_CHECK(request->body.size() <= 4096);
  CBT_FUZZ_CHECK(request->path.find('?') == std::string::npos);
  const ResourceTarget target = ParseResourcePath(request->path);
  if (target.kind == ResourceTarget::Kind::kCollection) {
    CBT_FUZZ_CHECK(!target.name_space.empty());
    CBT_FUZZ_CHECK(target.name_space.find_first_of("/.%") == std::string::npos);
  }
  const auto document = DiscoveryDocument(*request);
  if (document.has_value() && document->code == 200) {
    CBT_FUZZ_CHECK(Object::Parse(document->body).ok());
  }
  (void)HealthAnswer("readyz", {{"a", ""}, {"b", "c"}}, request->query);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size - 1);
  switch (data[size - 1] % 6) {
    case 0:
      TryDelta(text);
      break;
    case 1:
      TryPageRequest(text);
      break;
    case 2:
      TryPage(text);
      break;
    case 3:
      TryDiscovery(text);
      break;
    case 4:
      TryFrontProxy(text);
      break;
    default:
      TryHttp(text);
  }
  return 0;
}

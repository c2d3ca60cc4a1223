// The cursor over a plugin's answer: sought anywhere, also after an error. What plugins may get
// wrong stands in tests/interop/provider_lies_test.py.
#include "cbt/rpc/external_provider.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "provider.pb.h"
#include "tests/reference/volume.h"
#include "tests/rpc/support/raw_service.h"
#include "tests/support/cursors.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {
namespace external_provider_test {

using absl::StatusCode;
using cbt::provider::v1::Answer;
using cbt::provider::v1::OpenRequest;
using reference::Ranges;

class Plugin {
 public:
  using Messages = std::function<std::vector<Answer>(const OpenRequest&)>;

  explicit Plugin(Messages messages) : service_(std::move(messages), calls_) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + (dir_ / "s"), grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    provider_ = ValueOf(rpc::MakeExternalProvider("unix://" + (dir_ / "s")));
  }
  ~Plugin() { server_->Shutdown(std::chrono::system_clock::now()); }

  absl::StatusOr<MetadataSource> Open() const {
    const Secrets secrets;
    return provider_->OpenAllocated("s", StreamContext{.stop = {}, .secrets = secrets});
  }
  int calls() const { return calls_; }

 private:
  class Reactor final : public RawService::WriteReactor {
   public:
    explicit Reactor(std::vector<Answer> answers) : answers_(std::move(answers)) { Step(true); }
    void OnWriteDone(bool ok) override { Step(ok); }
    void OnDone() override { delete this; }

   private:
    void Step(bool ok) {
      if (!ok || next_ == answers_.size()) {
        Finish(ok ? grpc::Status::OK : grpc::Status::CANCELLED);
        return;
      }
      buffer_ = BufferOf(answers_[next_++].SerializeAsString());
      StartWrite(&buffer_);
    }

    const std::vector<Answer> answers_;
    size_t next_ = 0;
    grpc::ByteBuffer buffer_;
  };

  class Service final : public RawService {
   public:
    Service(Messages messages, std::atomic<int>& calls) {
      AddStream("/cbt.provider.v1.SnapshotProvider/Open",
                [messages = std::move(messages), &calls](
                    grpc::CallbackServerContext*, const grpc::ByteBuffer* bytes) -> WriteReactor* {
                  ++calls;
                  OpenRequest request;
                  request.ParseFromString(BytesOf(*bytes));
                  return new Reactor(messages(request));
                });
    }
  };

  const TempDir dir_;
  std::atomic<int> calls_ = 0;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<SnapshotProvider> provider_;
};

Answer HeadOf(uint64_t capacity, uint64_t granularity, cbt::provider::v1::Content content) {
  Answer answer;
  answer.mutable_head()->set_capacity_bytes(capacity);
  answer.mutable_head()->set_granularity_bytes(granularity);
  answer.mutable_head()->set_content(content);
  return answer;
}

Answer EndOf(uint64_t count) {
  Answer answer;
  answer.mutable_end()->set_count(count);
  return answer;
}

Answer ExtentsOf(const Ranges& ranges) {
  Answer answer;
  answer.mutable_extents();
  for (const auto& [offset, length] : ranges) {
    answer.mutable_extents()->add_offsets_bytes(offset);
    answer.mutable_extents()->add_lengths_bytes(length);
  }
  return answer;
}

Ranges From(const Ranges& ranges, uint64_t offset) {
  Ranges rest;
  for (const auto& [begin, length] : ranges) {
    if (begin + length <= offset) continue;
    rest.emplace_back(std::max(begin, offset), begin + length - std::max(begin, offset));
  }
  return rest;
}

TEST(ExternalProvider, AnswersTheSameFromEveryOffset) {
  SeededRandom random(44);
  const auto below = [&random](uint64_t bound) { return random() % bound; };
  for (int round = 0; round < 30; ++round) {
    const uint64_t granularity = below(2) == 0 ? 512 : 1000;
    const uint64_t blocks = 1 + below(400);
    const uint64_t capacity = blocks * granularity - below(granularity);
    const bool as_bitmap = below(2) == 0;
    const bool anywhere = below(2) == 0;
    const size_t piece = 1 + below(20);
    std::string bits((blocks + 7) / 8, '\0');
    Ranges truth;
    for (uint64_t block = 0; block < blocks; ++block) {
      if (below(3) == 0) continue;
      bits[block / 8] = static_cast<char>(bits[block / 8] | 1 << block % 8);
      const uint64_t begin = block * granularity;
      const uint64_t length = std::min(granularity, capacity - begin);
      if (!truth.empty() && truth.back().first + truth.back().second == begin) {
        truth.back().second += length;
      } else {
        truth.emplace_back(begin, length);
      }
    }
    const Plugin plugin([&](const OpenRequest& request) {
      std::vector<Answer> answers = {
          HeadOf(capacity, granularity,
                 as_bitmap ? cbt::provider::v1::BITMAP : cbt::provider::v1::EXTENTS)};
      const uint64_t start = anywhere ? request.starting_offset_bytes() : 0;
      auto& head = *answers[0].mutable_head();
      head.set_starts_anywhere(anywhere);
      if (as_bitmap) {
        const uint64_t first = start / granularity / 8;
        head.set_begins_at_bytes(first * 8 * granularity);
        for (size_t at = first; at < bits.size(); at += piece) {
          answers.emplace_back().set_bitmap(bits.substr(at, piece));
        }
        answers.push_back(EndOf(bits.size() - first));
      } else {
        const Ranges rest = [&] {
          Ranges found;
          for (const auto& range : truth) {
            if (range.first + range.second > start) found.push_back(range);
          }
          return found;
        }();
        head.set_begins_at_bytes(start);
        for (size_t at = 0; at < rest.size(); at += piece) {
          answers.push_back(ExtentsOf(Ranges(
              rest.begin() + static_cast<std::ptrdiff_t>(at),
              rest.begin() + static_cast<std::ptrdiff_t>(std::min(at + piece, rest.size())))));
        }
        answers.push_back(EndOf(rest.size()));
      }
      return answers;
    });
    auto source = plugin.Open();
    ASSERT_OK(source);
    ExtentCursor& cursor = *source->cursor;
    EXPECT_EQ(cursor.capacity(), capacity);
    for (int seek = 0; seek < 12; ++seek) {
      const uint64_t offset = below(capacity);
      ASSERT_OK(cursor.Seek(offset));
      // Leaves some unread, and goes on from there or elsewhere.
      ExtentBatch few(1 + below(5));
      for (uint64_t calls = below(3); calls > 0; --calls) ASSERT_OK(cursor.Next(few));
      const uint64_t again = below(2) == 0 ? offset : cursor.covered();
      if (again == capacity) continue;
      EXPECT_TRUE(SameRanges(ValueOf(DrainFrom(cursor, again, 1 + below(9))),
                             From(truth, AlignDown(again, granularity))));
    }
  }
}

// What a refused part held is not passed over by a consumer that seeks to where it was and goes on.
TEST(ExternalProvider, OpensAnotherCallAfterAnError) {
  std::atomic<bool> lies = true;
  const Plugin plugin([&](const OpenRequest&) {
    return std::vector<Answer>{HeadOf(1 << 20, 1, cbt::provider::v1::EXTENTS), ExtentsOf({{0, 10}}),
                               ExtentsOf({{100, lies ? 0u : 10u}}), ExtentsOf({{200, 10}}),
                               EndOf(3)};
  });
  auto source = plugin.Open();
  ASSERT_OK(source);
  for (const uint64_t offset : {0u, 10u, 50u, 150u}) {
    EXPECT_EQ(DrainFrom(*source->cursor, offset).status().code(), StatusCode::kInternal) << offset;
  }
  EXPECT_EQ(plugin.calls(), 4);
  lies = false;
  EXPECT_EQ(ValueOf(DrainFrom(*source->cursor, 50)), (Ranges{{100, 10}, {200, 10}}));
}

TEST(ExternalProvider, TakesASocketOnly) {
  for (const char* const address : {"", "localhost:50051", "nowhere", "nbd://x"}) {
    EXPECT_EQ(rpc::MakeExternalProvider(address).status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace external_provider_test
}  // namespace cbt::test

// Runs streams that each take a message per second, in a separate process, so that their own cost
// does not slow down the process that measures.
//
//   slow_readers ADDRESS SNAPSHOT STREAMS MAX_RESULTS
//
// Prints the mean length of the first messages once each stream has one; then, for each line on
// standard input, the number of messages in one second. Exits at the end of the input.
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "csi.pb.h"

namespace cbt::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kStreamsAConnection = 100;
// The streams take turns within the second, in this many slots.
constexpr size_t kTurns = 50;
constexpr std::chrono::seconds kWaitLimit{60};  // for any answer
constexpr char kAllocated[] = "/csi.v1.SnapshotMetadata/GetMetadataAllocated";

[[noreturn]] void Fail(const char* reason) {
  std::cerr << "slow_readers: " << reason << std::endl;
  std::_Exit(1);
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Small fixed windows, so that everything not requested stays on the server.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

class Streams {
 public:
  Streams() = default;
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() {
    for (Stream& stream : streams_) stream.context.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }

  void Open(const std::shared_ptr<grpc::Channel>& channel, const grpc::ByteBuffer& request) {
    Stream& stream = streams_.emplace_back();
    stream.call = grpc::GenericStub(channel).PrepareCall(&stream.context, kAllocated, &queue_);
    stream.call->StartCall(&stream);
    Wait(1);
    stream.call->WriteLast(request, grpc::WriteOptions(), &stream);
    Wait(1);
  }

  // Takes a message from each of the streams from `begin` to `end`; returns their bytes.
  size_t Read(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) streams_[i].call->Read(&streams_[i].message, &streams_[i]);
    Wait(end - begin);
    size_t bytes = 0;
    for (size_t i = begin; i < end; ++i) {
      bytes += streams_[i].message.Length();
      streams_[i].message.Clear();
    }
    return bytes;
  }

  size_t size() const { return streams_.size(); }

 private:
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
    grpc::ByteBuffer message;
  };

  void Wait(size_t events) {
    for (; events > 0; --events) {
      void* tag = nullptr;
      bool ok = false;
      switch (queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kWaitLimit)) {
        case grpc::CompletionQueue::GOT_EVENT:
          if (!ok) Fail("a stream ended");
          break;
        case grpc::CompletionQueue::TIMEOUT:
          Fail("no message arrived");
        case grpc::CompletionQueue::SHUTDOWN:
          Fail("the queue is shut down");
      }
    }
  }

  grpc::CompletionQueue queue_;
  std::deque<Stream> streams_;
};

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int Main(const std::string& address, const std::string& snapshot, size_t count,
         int32_t max_results) {
  csi::v1::GetMetadataAllocatedRequest asked;
  asked.set_snapshot_id(snapshot);
  asked.set_max_results(max_results);
  const grpc::Slice slice(asked.SerializeAsString());
  const grpc::ByteBuffer request(&slice, 1);

  Streams streams;
  std::shared_ptr<grpc::Channel> channel;
  for (size_t i = 0; i < count; ++i) {
    if (i % kStreamsAConnection == 0) channel = Connect(address);
    streams.Open(channel, request);
  }
  const size_t bytes = streams.Read(0, count);
  std::cout << static_cast<double>(bytes) / static_cast<double>(count) << std::endl;

  std::atomic<bool> stop = false;
  std::thread listener([&stop] {
    std::string line;
    std::getline(std::cin, line);
    stop = true;
  });
  const Clock::time_point begin = Clock::now();
  size_t turns = 0;
  size_t taken = 0;
  while (!stop) {
    const size_t turn = turns % kTurns;
    taken += (turn + 1) * count / kTurns - turn * count / kTurns;
    streams.Read(turn * count / kTurns, (turn + 1) * count / kTurns);
    ++turns;
    std::this_thread::sleep_until(begin + turns * std::chrono::milliseconds(1000) / kTurns);
  }
  std::cout << static_cast<double>(taken) / SecondsSince(begin) << std::endl;
  listener.join();
  std::string rest;
  while (std::getline(std::cin, rest)) continue;
  return 0;
}

}  // namespace
}  // namespace cbt::test

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "slow_readers ADDRESS SNAPSHOT STREAMS MAX_RESULTS" << std::endl;
    return 2;
  }
  return cbt::test::Main(argv[1], argv[2], std::stoul(argv[3]), std::stoi(argv[4]));
}

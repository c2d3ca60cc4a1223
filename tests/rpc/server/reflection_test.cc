// Reflection must suffice for a tool without .proto files. libprotobuf decodes all messages and
// descriptors, none of our own code.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/rpc/access.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "cbt/units.h"
#include "tests/rpc/support/fixture.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace reflection_test {

namespace pb = google::protobuf;
using grpc::StatusCode;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

constexpr const char* kVersions[] = {"v1", "v1alpha"};

// Field numbers of reflection.proto.
enum Asked { kFileByName = 3, kFileBySymbol = 4, kExtensionNumbers = 6, kListServices = 7 };

std::string BytesOf(const pb::UnknownFieldSet& fields) {
  std::string bytes;
  EXPECT_TRUE(fields.SerializeToString(&bytes));
  return bytes;
}

std::string RequestFor(int field, const std::string& argument, const std::string& host = "") {
  pb::UnknownFieldSet fields;
  if (!host.empty()) fields.AddLengthDelimited(1, host);
  fields.AddLengthDelimited(field, argument);
  return BytesOf(fields);
}

// All texts of one field of a message.
std::vector<std::string> TextsOf(const std::string& bytes, int field) {
  pb::UnknownFieldSet fields;
  EXPECT_TRUE(fields.ParseFromString(bytes));
  std::vector<std::string> texts;
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).number() == field) texts.push_back(fields.field(i).length_delimited());
  }
  return texts;
}

struct Reply {
  std::string bytes;
  std::string host;
  std::string request;
  std::vector<std::string> files;  // descriptors in the order received
  std::set<std::string> services;
  StatusCode error = StatusCode::OK;
  std::string error_text;
};

Reply Understand(const std::string& bytes) {
  Reply reply;
  reply.bytes = bytes;
  pb::UnknownFieldSet fields;
  EXPECT_TRUE(fields.ParseFromString(bytes));
  for (int i = 0; i < fields.field_count(); ++i) {
    const std::string& text = fields.field(i).length_delimited();
    switch (fields.field(i).number()) {
      case 1:
        reply.host = text;
        break;
      case 2:
        reply.request = text;
        break;
      case 4:
        reply.files = TextsOf(text, 1);
        break;
      case 6:
        for (const std::string& service : TextsOf(text, 1)) {
          for (const std::string& name : TextsOf(service, 1)) reply.services.insert(name);
        }
        break;
      case 7: {
        pb::UnknownFieldSet error;
        EXPECT_TRUE(error.ParseFromString(text));
        EXPECT_EQ(error.field_count(), 2);
        reply.error = static_cast<StatusCode>(error.field(0).varint());
        reply.error_text = error.field(1).length_delimited();
        break;
      }
      default:
        ADD_FAILURE() << "field " << fields.field(i).number();
    }
  }
  return reply;
}

std::string PathOf(const std::string& version) {
  return absl::StrCat("/grpc.reflection.", version, ".ServerReflection/ServerReflectionInfo");
}

// One call that carries several requests.
class Reflection {
 public:
  Reflection(const std::shared_ptr<grpc::Channel>& channel, const std::string& version) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    call_ = grpc::GenericStub(channel).PrepareCall(&context_, PathOf(version), &queue_);
    call_->StartCall(this);
    Wait();
  }
  ~Reflection() {
    context_.TryCancel();
    Finish();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }

  void Send(const std::string& request) {
    const grpc::Slice slice(request);
    const grpc::ByteBuffer buffer(&slice, 1);
    call_->Write(buffer, this);
    Wait();
  }
  Reply Ask(const std::string& request) {
    Send(request);
    grpc::ByteBuffer answer;
    call_->Read(&answer, this);
    grpc::Slice slice;
    if (!Wait() || !answer.DumpToSingleSlice(&slice).ok()) {
      ADD_FAILURE() << "no answer";
      return {};
    }
    return Understand({reinterpret_cast<const char*>(slice.begin()), slice.size()});
  }
  Reply Ask(int field, const std::string& argument) { return Ask(RequestFor(field, argument)); }

  // Half-closes: no further request.
  grpc::Status Close() {
    call_->WritesDone(this);
    Wait();
    return Ended();
  }

  // Waits for the server to end the call.
  grpc::Status Ended() {
    grpc::ByteBuffer nothing;
    call_->Read(&nothing, this);
    EXPECT_FALSE(Wait());
    return Finish();
  }

 private:
  grpc::Status Finish() {
    if (!std::exchange(finished_, true)) {
      call_->Finish(&status_, this);
      Wait();
    }
    return status_;
  }
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;
  bool finished_ = false;
};

// The descriptors that a tool builds only from the files it received.
class Known {
 public:
  explicit Known(const std::vector<std::string>& files) : pool_(&database_) {
    for (const std::string& bytes : files) {
      pb::FileDescriptorProto file;
      EXPECT_TRUE(file.ParseFromString(bytes));
      EXPECT_TRUE(database_.Add(file)) << file.name() << " came twice";
      names_.push_back(file.name());
    }
  }
  // In the order received.
  const std::vector<std::string>& names() const { return names_; }
  const pb::DescriptorPool& pool() const { return pool_; }

 private:
  pb::SimpleDescriptorDatabase database_;
  pb::DescriptorPool pool_;
  std::vector<std::string> names_;
};

std::string FirstName(const Reply& reply) {
  pb::FileDescriptorProto file;
  if (reply.files.empty() || !file.ParseFromString(reply.files.front())) return "";
  return file.name();
}

// A server of every contract, and a relay for the sidecar's contracts.
class Reflected : public testing::Test {
 protected:
  Reflected()
      : provider_([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
          return Extents(CursorOver({{0, 1}}, 4096));
        }),
        access_(rpc::MakeTokenAccess({})),
        directories_(rpc::MakeDirectoryResolver()),
        sessions_(rpc::MemorySessionStore::Create()) {}

  rpc::ServerOptions Options(const std::string& name, std::vector<rpc::Api> apis) {
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir_ / name);
    options.service.apis = std::move(apis);
    options.service.access = {.authenticator = access_.get(),
                              .authorizer = access_.get(),
                              .resolver = directories_.get()};
    options.service.sessions = sessions_.get();
    return options;
  }
  std::unique_ptr<rpc::Server> Serve(const rpc::ServerOptions& options) {
    auto server = rpc::Server::Start(provider_, options);
    EXPECT_OK(server);
    return *std::move(server);
  }
  std::unique_ptr<rpc::Server> ServeAll() {
    return Serve(Options(
        "all", {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession, rpc::Api::kPaged}));
  }

  const TempDir dir_;
  FunctionProvider provider_;
  const std::unique_ptr<rpc::TokenAccess> access_;
  const std::unique_ptr<rpc::SnapshotResolver> directories_;
  const std::unique_ptr<rpc::MemorySessionStore> sessions_;
};

// A single request and the end of the call.
grpc::Status AskOnce(const std::shared_ptr<grpc::Channel>& channel, const std::string& request,
                     std::optional<std::string>& answer) {
  RawCall call(channel, PathOf("v1"), request, std::chrono::seconds(60));
  answer = call.Read();
  return call.Finish();
}

bool IsAnswered(const std::shared_ptr<grpc::Channel>& channel) {
  std::optional<std::string> answer;
  return AskOnce(channel, RequestFor(kFileByName, "csi.proto"), answer).ok() && answer.has_value();
}

std::set<std::string> ServicesOf(const std::string& address) {
  return Reflection(Connect(address), "v1").Ask(kListServices, "").services;
}

TEST_F(Reflected, ListsWhatIsServedAndNothingElse) {
  const auto all = ServeAll();
  EXPECT_THAT(ServicesOf(all->address()),
              UnorderedElementsAre("csi.v1.SnapshotMetadata", "snapshotmetadata.SnapshotMetadata",
                                   "SnapshotMetadata", "csi.v1.Controller", "csi.v1.Identity",
                                   "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                   "grpc.reflection.v1alpha.ServerReflection"));
  const auto paged = Serve(Options("paged", {rpc::Api::kPaged}));
  EXPECT_THAT(ServicesOf(paged->address()),
              UnorderedElementsAre("csi.v1.Controller", "csi.v1.Identity", "grpc.health.v1.Health",
                                   "grpc.reflection.v1.ServerReflection",
                                   "grpc.reflection.v1alpha.ServerReflection"));
  // A sidecar is not a plugin: it has no identity.
  rpc::RelayOptions options;
  options.listen = "unix://" + (dir_ / "relay");
  options.plugin = paged->address();
  options.service.access = {
      .authenticator = access_.get(), .authorizer = access_.get(), .resolver = directories_.get()};
  const auto relay = rpc::Relay::Start(options);
  ASSERT_OK(relay);
  EXPECT_THAT(ServicesOf((*relay)->address()),
              UnorderedElementsAre("snapshotmetadata.SnapshotMetadata", "grpc.health.v1.Health",
                                   "grpc.reflection.v1.ServerReflection",
                                   "grpc.reflection.v1alpha.ServerReflection"));
}

// Tools walk the list and stop at the first service without a description.
TEST_F(Reflected, EveryServiceOfTheListIsDescribedWhole) {
  const auto server = ServeAll();
  const auto channel = Connect(server->address());
  for (const char* version : kVersions) {
    Reflection reflection(channel, version);
    const std::set<std::string> services = reflection.Ask(kListServices, "").services;
    ASSERT_EQ(services.size(), 8u);
    for (const std::string& name : services) {
      SCOPED_TRACE(name);
      const Reply reply = reflection.Ask(kFileBySymbol, name);
      EXPECT_EQ(reply.error, StatusCode::OK) << reply.error_text;
      const Known known(reply.files);
      const pb::ServiceDescriptor* const service = known.pool().FindServiceByName(name);
      ASSERT_NE(service, nullptr);
      EXPECT_EQ(service->file()->name(), known.names().front());
      EXPECT_GT(service->method_count(), 0);
      for (int i = 0; i < service->method_count(); ++i) {
        EXPECT_EQ(reflection.Ask(kFileBySymbol, service->method(i)->full_name()).files,
                  reply.files);
      }
    }
    EXPECT_OK(reflection.Close());
  }
}

TEST_F(Reflected, EveryMethodThatIsDescribedIsServed) {
  const auto server = ServeAll();
  const auto channel = Connect(server->address());
  Reflection reflection(channel, "v1");
  int methods = 0;
  for (const std::string& name : reflection.Ask(kListServices, "").services) {
    const Known known(reflection.Ask(kFileBySymbol, name).files);
    const pb::ServiceDescriptor* const service = known.pool().FindServiceByName(name);
    ASSERT_NE(service, nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i, ++methods) {
      const std::string path = absl::StrCat("/", name, "/", service->method(i)->name());
      RawCall call(channel, path, "", std::chrono::seconds(60));
      if (call.Read().has_value()) continue;
      EXPECT_NE(call.Finish().error_code(), StatusCode::UNIMPLEMENTED) << path;
    }
  }
  EXPECT_GE(methods, 14);
}

TEST_F(Reflected, AFileComesWithAllThatItImports) {
  const auto server = ServeAll();
  Reflection reflection(Connect(server->address()), "v1");
  const auto names = [&reflection](const std::string& file) {
    return Known(reflection.Ask(kFileByName, file).files).names();
  };
  EXPECT_THAT(names("csi.proto"), ElementsAre("csi.proto", "google/protobuf/wrappers.proto"));
  EXPECT_THAT(names("list_snapshot_deltas.proto"),
              ElementsAre("list_snapshot_deltas.proto", "google/protobuf/timestamp.proto"));
  EXPECT_THAT(names("snapshotmetadata.proto"), ElementsAre("snapshotmetadata.proto"));
  EXPECT_THAT(names("first_revision.proto"), ElementsAre("first_revision.proto"));
  // An imported file can be requested alone.
  EXPECT_THAT(names("google/protobuf/wrappers.proto"),
              ElementsAre("google/protobuf/wrappers.proto"));
  EXPECT_EQ(FirstName(reflection.Ask(kFileBySymbol, "google.protobuf.BoolValue")),
            "google/protobuf/wrappers.proto");
}

// Calls `visit` with the name of each type that a file declares, recursively.
void ForEachType(const pb::Descriptor& type, const std::function<void(const std::string&)>& visit) {
  visit(type.full_name());
  for (int i = 0; i < type.nested_type_count(); ++i) ForEachType(*type.nested_type(i), visit);
  for (int i = 0; i < type.enum_type_count(); ++i) visit(type.enum_type(i)->full_name());
}

TEST_F(Reflected, TypesAreFoundAlsoInsideOfOthers) {
  const auto server = ServeAll();
  Reflection reflection(Connect(server->address()), "v1alpha");
  std::set<std::string> asked;
  for (const char* file : {"csi.proto", "first_revision.proto", "list_snapshot_deltas.proto",
                           "snapshotmetadata.proto"}) {
    const Reply whole = reflection.Ask(kFileByName, file);
    const Known known(whole.files);
    const pb::FileDescriptor* const described = known.pool().FindFileByName(file);
    ASSERT_NE(described, nullptr) << file;
    const auto visit = [&](const std::string& name) {
      asked.insert(name);
      EXPECT_EQ(reflection.Ask(kFileBySymbol, name).files, whole.files) << name;
    };
    for (int i = 0; i < described->message_type_count(); ++i) {
      ForEachType(*described->message_type(i), visit);
    }
    for (int i = 0; i < described->enum_type_count(); ++i) {
      visit(described->enum_type(i)->full_name());
    }
  }
  EXPECT_TRUE(asked.contains("csi.v1.PluginCapability.Service.Type"));
  EXPECT_TRUE(asked.contains("csi.v1.GetMetadataDeltaRequest.SecretsEntry"));
  EXPECT_TRUE(asked.contains("csi.v1.BlockMetadataType"));
}

TEST_F(Reflected, WhatIsNotThereIsNotFound) {
  const auto server = ServeAll();
  Reflection reflection(Connect(server->address()), "v1");
  for (const int field : {int{kFileByName}, int{kFileBySymbol}}) {
    for (const char* name : {"", ".", "none", "csi", "csi.v1", "csi.v1.", "csi.v1.Identit",
                             "csi.v1.Identity2", ".csi.v1.Identity", "Identity", "csi.prot"}) {
      const Reply reply = reflection.Ask(field, name);
      EXPECT_EQ(reply.error, StatusCode::NOT_FOUND) << name;
      EXPECT_THAT(reply.error_text, Not(IsEmpty()));
      EXPECT_THAT(reply.files, IsEmpty()) << name;
      EXPECT_EQ(reply.request, RequestFor(field, name));
    }
  }
  // A file name is not a symbol, and vice versa.
  EXPECT_EQ(reflection.Ask(kFileByName, "csi.v1.Identity").error, StatusCode::NOT_FOUND);
  EXPECT_EQ(reflection.Ask(kFileBySymbol, "csi.proto").error, StatusCode::NOT_FOUND);
}

// Errors are answers: the call continues.
TEST_F(Reflected, StrangeQuestionsAreAnsweredAndTheNextOneToo) {
  const auto server = ServeAll();
  Reflection reflection(Connect(server->address()), "v1");
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff"), std::string("\x22\x7f"
                                                                                "abc")}) {
    const Reply reply = reflection.Ask(bytes);
    EXPECT_EQ(reply.error, StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(reply.request, bytes);
    EXPECT_THAT(reply.files, IsEmpty());
    EXPECT_THAT(reply.services, IsEmpty());
  }
  pb::UnknownFieldSet extension;
  extension.AddLengthDelimited(1, "csi.v1.GetPluginInfoResponse");
  extension.AddVarint(2, 1060);
  for (const std::string& bytes : {RequestFor(kExtensionNumbers, "csi.v1.GetPluginInfoResponse"),
                                   RequestFor(5, BytesOf(extension)), std::string()}) {
    EXPECT_EQ(reflection.Ask(bytes).error, StatusCode::UNIMPLEMENTED);
  }
  EXPECT_EQ(reflection.Ask(kListServices, "").services.size(), 8u);
  EXPECT_OK(reflection.Close());
}

TEST_F(Reflected, FieldsOfLaterVersionsArePassedOver) {
  const auto server = ServeAll();
  Reflection reflection(Connect(server->address()), "v1");
  pb::UnknownFieldSet later;
  later.AddVarint(2, 7);
  later.AddLengthDelimited(kFileBySymbol, "csi.v1.Identity");
  later.AddVarint(100, 7);
  later.AddFixed64(101, 7);
  later.AddLengthDelimited(102, "csi.v1.Absent");
  EXPECT_EQ(FirstName(reflection.Ask(BytesOf(later))), "csi.proto");
  // Of several requests in one message the last counts, as libprotobuf reads a oneof.
  EXPECT_EQ(FirstName(reflection.Ask(RequestFor(kListServices, "") +
                                     RequestFor(kFileByName, "snapshotmetadata.proto"))),
            "snapshotmetadata.proto");
}

// Answers match the service's own description of itself.
TEST_F(Reflected, AnswersAreWhatTheDescriptionOfReflectionSays) {
  const auto server = ServeAll();
  for (const std::string version : kVersions) {
    Reflection reflection(Connect(server->address()), version);
    const std::string package = "grpc.reflection." + version + ".";
    const Known known(reflection.Ask(kFileBySymbol, package + "ServerReflection").files);
    const pb::Descriptor* const type =
        known.pool().FindMessageTypeByName(package + "ServerReflectionResponse");
    ASSERT_NE(type, nullptr) << version;
    pb::DynamicMessageFactory factory;
    const auto read = [&](const std::string& request) {
      const std::unique_ptr<pb::Message> message(factory.GetPrototype(type)->New());
      EXPECT_TRUE(message->ParseFromString(reflection.Ask(request).bytes));
      EXPECT_TRUE(message->GetReflection()->GetUnknownFields(*message).empty());
      return message->ShortDebugString();
    };
    EXPECT_EQ(read(RequestFor(kFileByName, "none", "storage.example.com")),
              "valid_host: \"storage.example.com\" original_request { host: "
              "\"storage.example.com\" file_by_filename: \"none\" } error_response { error_code: "
              "5 error_message: \"unknown file or symbol\" }");
    EXPECT_THAT(read(RequestFor(kListServices, "*")),
                testing::StartsWith("original_request { list_services: \"*\" } "
                                    "list_services_response { service { name: "));
  }
}

TEST_F(Reflected, ClientsThatGoWithoutListeningLeaveNothingBehind) {
  const auto server = ServeAll();
  const auto channel = Connect(server->address());
  for (int i = 0; i < 200; ++i) {
    Reflection reflection(channel, "v1");
    for (int asked = 0; asked < i % 4; ++asked) {
      reflection.Send(RequestFor(kFileByName, "csi.proto"));
    }
  }
  // The last calls may still hold their slots.
  EXPECT_TRUE(Eventually([&] { return IsAnswered(channel); }));
  // A call that is still open would delay it.
  const Stopwatch watch;
  server->Shutdown(std::chrono::seconds(60));
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(30));
}

// Answers echo the request, and no token is needed to send one.
TEST_F(Reflected, QuestionsAreShort) {
  const auto server = ServeAll();
  const auto channel = Connect(server->address());
  std::string longest = RequestFor(kFileByName, std::string(4000, 'x'));
  longest = RequestFor(kFileByName, std::string(4000 + 4096 - longest.size(), 'x'));
  ASSERT_EQ(longest.size(), 4096u);
  std::optional<std::string> answer;
  EXPECT_OK(AskOnce(channel, longest, answer));
  EXPECT_EQ(Understand(answer.value_or("")).request, longest);
  for (const size_t more : {size_t{1}, 50 * kKiB}) {
    const grpc::Status status =
        AskOnce(channel, RequestFor(kFileByName, std::string(4093 + more, 'x')), answer);
    EXPECT_FALSE(answer.has_value());
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), testing::HasSubstr("4096"));
  }
  EXPECT_TRUE(IsAnswered(channel));
}

TEST_F(Reflected, CallsThatAreTooManyAreRefusedAndTakeNoStreamsPlace) {
  rpc::ServerOptions options = Options("few", {rpc::Api::kCsi});
  options.service.stream.max_streams = 1;
  const auto server = Serve(options);
  const auto channel = Connect(server->address());
  std::vector<std::unique_ptr<Reflection>> open;
  // docs/guides/running-servers.md documents this limit.
  for (int i = 0; i < 64; ++i) {
    open.push_back(std::make_unique<Reflection>(channel, kVersions[i % 2]));
    EXPECT_EQ(open.back()->Ask(kListServices, "").services.size(), 5u);
  }
  std::optional<std::string> answer;
  EXPECT_EQ(AskOnce(channel, RequestFor(kListServices, ""), answer).error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(server->open_streams(), 0u);
  csi::v1::GetMetadataAllocatedRequest request;
  request.set_snapshot_id("s");
  RawCall stream(channel, kAllocatedPath, request.SerializeAsString(), std::chrono::seconds(60));
  EXPECT_TRUE(stream.Read().has_value());
  // An admitted call continues; a released slot goes to another client.
  EXPECT_EQ(open.front()->Ask(kListServices, "").services.size(), 5u);
  EXPECT_OK(open.back()->Close());
  EXPECT_TRUE(Eventually([&] { return IsAnswered(channel); }));
}

TEST_F(Reflected, WhoAsksNothingIsSentAway) {
  rpc::ServerOptions options = Options("impatient", {rpc::Api::kCsi});
  options.service.stream.stall_timeout = std::chrono::milliseconds(100);
  const auto server = Serve(options);
  const auto channel = Connect(server->address());
  EXPECT_EQ(Reflection(channel, "v1").Ended().error_code(), StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(Reflected, CanBeSwitchedOff) {
  rpc::ServerOptions options = Options("off", {rpc::Api::kCsi});
  options.service.reflection = false;
  const auto server = Serve(options);
  const auto channel = Connect(server->address());
  for (const char* version : kVersions) {
    RawCall call(channel, PathOf(version), RequestFor(kListServices, ""), std::chrono::seconds(60));
    EXPECT_FALSE(call.Read().has_value());
    EXPECT_EQ(call.Finish().error_code(), StatusCode::UNIMPLEMENTED);
  }
}

}  // namespace reflection_test
}  // namespace cbt::test

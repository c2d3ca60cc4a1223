// kubelet's messages as the node adapter reads them.
#include "programs/cosi/node/csi_messages.h"

#include <gtest/gtest.h>

#include <string>

#include "wire/proto_writer.h"

namespace cbt::kube::cosi {
namespace csi_messages_test {
namespace {

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Publish(const std::string& volume, const std::string& capability) {
  std::string out;
  wire::AppendBytesField(out, 1, volume);
  wire::AppendBytesField(out, 4, "/target");
  if (!capability.empty()) wire::AppendBytesField(out, 5, capability);
  std::string entry;
  wire::AppendBytesField(entry, 1, "key");
  wire::AppendBytesField(entry, 2, "value");
  wire::AppendBytesField(out, 8, entry);
  return out;
}

std::string MountCapability(const std::string& group) {
  std::string mount;
  wire::AppendBytesField(mount, 3, group);
  std::string out;
  wire::AppendBytesFieldAlways(out, 2, mount);
  return out;
}

TEST(CosiCsiMessages, APublication) {
  const auto request = DecodePublish(Bytes(Publish("v", MountCapability("1234"))));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->volume_id, "v");
  EXPECT_EQ(request->target_path, "/target");
  EXPECT_EQ(request->mount_group, "1234");
  EXPECT_EQ(request->At("key"), "value");
  EXPECT_EQ(request->At("other"), "");
}

TEST(CosiCsiMessages, WhatIsMissingIsNamed) {
  const auto text = [](const std::string& bytes) {
    const absl::Status status = DecodePublish(Bytes(bytes)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(text(""), "volume_id: is missing");
  EXPECT_EQ(text(Publish("v", "")), "volume_capability: is missing");
  std::string block;
  wire::AppendBytesFieldAlways(block, 1, "");
  EXPECT_NE(text(Publish("v", block)).find("no blocks"), std::string::npos);
  EXPECT_EQ(text(Publish("\xff", MountCapability(""))), "the request can't be read");
  EXPECT_EQ(DecodeUnpublish(Bytes(std::string("\x0a\x01v"))).status().message(),
            "target_path: is missing");
}

TEST(CosiCsiMessages, EveryCutIsAnError) {
  const std::string whole = Publish("volume", MountCapability("1"));
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto request = DecodePublish(Bytes(whole.substr(0, length)));
    // The context may be missing, in one piece.
    if (request.ok()) {
      EXPECT_TRUE(request->context.empty()) << length;
    }
  }
}

TEST(CosiCsiMessages, CosiS1NothingIsStaged) {
  // One capability, rpc { type: VOLUME_MOUNT_GROUP }.
  EXPECT_EQ(EncodeNodeCapabilities(), std::string("\x0a\x04\x0a\x02\x08\x06"));
}

}  // namespace
}  // namespace csi_messages_test
}  // namespace cbt::kube::cosi

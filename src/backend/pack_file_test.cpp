#include "backend/pack_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/file.hpp"
#include "base/limits.hpp"

namespace adze::backend {
namespace {

PackHeader example() {
  PackHeader header;
  header.key = {7, 9};
  header.layout = "packed16-v1";
  header.model = "tiny";
  header.sources = {{"/models/tiny-00001-of-00002.gguf", 1000, 5}, {"/models/tiny-00002-of-00002.gguf", 2000, -6}};
  header.entries = {{.name = "blk.0.attn_q.weight", .group_bytes = 128, .groups = 3},
                    {.name = "output.weight", .group_bytes = 64, .groups = 1}};
  EXPECT_TRUE(lay_out(header));
  return header;
}

Result<PackHeader> parse(std::string_view bytes, std::uint64_t file_bytes) {
  return parse_pack_header(std::as_bytes(std::span(bytes.data(), bytes.size())), file_bytes);
}

TEST(PackFile, AHeaderReadsBackAsItWasWritten) {
  const PackHeader header = example();
  EXPECT_EQ(header.payload_offset, 2u << 20);
  EXPECT_EQ(header.entries[0].offset, 2u << 20);
  EXPECT_EQ(header.entries[1].offset, (2u << 20) + 384);
  EXPECT_EQ(header.file_bytes, (2u << 20) + 448);
  const auto back = parse(serialise(header), header.file_bytes);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->key, header.key);
  EXPECT_EQ(back->layout, "packed16-v1");
  EXPECT_EQ(back->model, "tiny");
  EXPECT_EQ(back->sources, header.sources);
  ASSERT_EQ(back->entries.size(), 2u);
  EXPECT_EQ(back->entries[1].name, "output.weight");
  EXPECT_EQ(back->entries[1].bytes(), 64u);
}

// No part of a file, and no byte of it in another state, is taken for the whole.
TEST(PackFile, EveryCutAndEveryFlippedBitIsRefused) {
  const PackHeader header = example();
  const std::string good = serialise(header);
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(parse(std::string_view(good).substr(0, size), header.file_bytes)) << size;
  }
  for (std::size_t i = 0; i < good.size() * 8; ++i) {
    std::string bad = good;
    bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << (i % 8)));
    EXPECT_FALSE(parse(bad, header.file_bytes)) << "bit " << i;
  }
  EXPECT_EQ(parse(good, header.file_bytes - 1).error().code, ErrorCode::corrupt_file);
  EXPECT_EQ(parse(good, header.file_bytes + 1).error().code, ErrorCode::corrupt_file);
  EXPECT_EQ(parse("GGUF and so on, which is some other kind of file, not a pack", 60).error().code,
            ErrorCode::not_a_model);
}

// Numbers that a checksum cannot catch, because it was made with them.
TEST(PackFile, ImpossibleNumbersAreRefused) {
  const auto code = [](auto change) {
    PackHeader header = example();
    change(header);
    const auto parsed = parse(serialise(header), header.file_bytes);
    EXPECT_FALSE(parsed);
    return parsed ? ErrorCode::cancelled : parsed.error().code;
  };
  constexpr ErrorCode kBad = ErrorCode::corrupt_file;
  EXPECT_EQ(code([](PackHeader& h) { h.entries[0].groups = std::uint64_t{1} << 60; }), kBad);
  EXPECT_EQ(code([](PackHeader& h) { h.entries[0].groups = 0; }), kBad);
  EXPECT_EQ(code([](PackHeader& h) { h.entries[0].group_bytes = 0; }), kBad);
  EXPECT_EQ(code([](PackHeader& h) { h.entries[0].group_bytes = 100; }), kBad);
  EXPECT_EQ(code([](PackHeader& h) { h.entries[0].group_bytes = ~std::uint64_t{63}; }), kBad);
  EXPECT_EQ(code([](PackHeader& h) { h.entries[1].offset += 64; }), kBad);                 // beyond the end
  EXPECT_EQ(code([](PackHeader& h) { h.entries[1].offset -= 64; }), kBad);                 // over the other one
  EXPECT_EQ(code([](PackHeader& h) { h.entries[0].offset = 0; }), kBad);                   // over the header
  EXPECT_EQ(code([](PackHeader& h) { h.entries[1].offset = ~std::uint64_t{63}; }), kBad);  // around the end of numbers
  EXPECT_EQ(code([](PackHeader& h) { h.payload_offset += 4096; }), kBad);
  EXPECT_EQ(code([](PackHeader& h) { h.payload_offset = std::uint64_t{1} << 40; }), kBad);
  EXPECT_EQ(code([](PackHeader& h) { h.model.assign(limits::kPackMaxTextBytes + 1, 'm'); }), kBad);
}

TEST(PackFile, CountsBeyondTheFileAreRefusedBeforeAnythingIsAllocated) {
  const PackHeader header = example();
  std::string text = serialise(header);
  const std::uint64_t two = 2, huge = std::uint64_t{1} << 17;
  const std::string count(reinterpret_cast<const char*>(&two), sizeof two);
  const auto at = text.find(count, text.find("packed16-v1"));  // of the sources
  ASSERT_NE(at, std::string::npos);
  std::memcpy(text.data() + at, &huge, sizeof huge);
  constexpr std::size_t kChecksumAt = 40;
  std::memset(text.data() + kChecksumAt, 0, sizeof(Digest));
  const Digest checksum = digest(text);
  std::memcpy(text.data() + kChecksumAt, &checksum, sizeof checksum);
  EXPECT_EQ(parse(text, header.file_bytes).error().code, ErrorCode::corrupt_file);
}

TEST(PackFile, WhatNoReaderWouldTakeIsNotLaidOut) {
  PackHeader header = example();
  header.entries[0].groups = std::uint64_t{1} << 50;
  EXPECT_EQ(lay_out(header).error().code, ErrorCode::limit_exceeded);
  header = example();
  header.model.assign(limits::kPackMaxTextBytes + 1, 'm');
  EXPECT_EQ(lay_out(header).error().code, ErrorCode::limit_exceeded);
  header = example();
  header.sources.resize(limits::kPackMaxSources + 1);
  EXPECT_EQ(lay_out(header).error().code, ErrorCode::limit_exceeded);
  header = example();
  header.entries.resize(limits::kPackMaxEntries + 1);
  EXPECT_EQ(lay_out(header).error().code, ErrorCode::limit_exceeded);
  header = example();
  header.entries.resize(1100, header.entries[0]);
  for (PackEntry& entry : header.entries) entry.name.assign(limits::kPackMaxTextBytes, 'n');
  EXPECT_EQ(lay_out(header).error().code, ErrorCode::limit_exceeded);
}

TEST(PackFile, VerifyingReadsEveryGroup) {
  PackHeader header = example();
  std::string payload(448, 'p');
  payload[200] = 'q';
  for (PackEntry& entry : header.entries) {
    std::vector<Digest> groups;
    for (std::uint64_t g = 0; g < entry.groups; ++g) {
      const std::uint64_t at = entry.offset - header.payload_offset + g * entry.group_bytes;
      groups.push_back(digest(std::string_view(payload).substr(at, entry.group_bytes)));
    }
    entry.content = digest(std::as_bytes(std::span(groups)));
  }
  const auto path = std::filesystem::path(::testing::TempDir()) / "adze_verify.pack";
  std::string text = serialise(header);
  text.resize(header.payload_offset);
  text += payload;
  ASSERT_TRUE(write_file_atomic(path, text));
  const auto always = [] { return true; };
  EXPECT_TRUE(verify_pack(path, always));
  EXPECT_EQ(verify_pack(path, [] { return false; }).error().code, ErrorCode::cancelled);
  text[text.size() - 70] = 'x';  // in the last group of the first weight
  ASSERT_TRUE(write_file_atomic(path, text));
  const Status damaged = verify_pack(path, always);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, ErrorCode::corrupt_file);
  EXPECT_THAT(damaged.error().message, ::testing::HasSubstr("'blk.0.attn_q.weight'"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace adze::backend

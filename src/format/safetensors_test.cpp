#include "format/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "format/inspect.hpp"
#include "format/npy.hpp"

namespace adze::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::filesystem::path temporary(const std::string& name) { return std::filesystem::path(::testing::TempDir()) / name; }

std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + header + std::string(data_bytes, '\0');
}

Result<SafetensorsFile> parse(const std::string& bytes) {
  return SafetensorsFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "memory.safetensors");
}

// Verdicts of safetensors 0.8.0 on the same headers.
TEST(Safetensors, AcceptsWhatTheLibraryAccepts) {
  const std::string a = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  const std::pair<std::string, std::size_t> kGood[] = {
      {"{\"a\":{" + a + "}}", 8},
      {"{\"a\":{" + a + ",\"later\":[1,{\"y\":[2.5,null,true,\"s\"]}]}}", 8},
      {"{\"__metadata__\":null,\"a\":{" + a + "}}", 8},
      {"{\"a\":{" + a + "},\"__metadata__\":{\"k\":\"v\"}}", 8},
      {"{\"a\":{" + a + "}}   \n", 8},
      {"{}", 0},
      {R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"a":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}})",
       7},
      {"{\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]},\"a\":{" + a +
           "},\"y\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
       8},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})", 8},
      {R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2},
  };
  for (const auto& [header, size] : kGood) {
    const auto file = parse(file_of(header, size));
    EXPECT_TRUE(file) << header << ": " << file.error().message;
  }
}

TEST(Safetensors, RefusesWhatTheLibraryRefuses) {
  const std::string a = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  const std::pair<std::string, const char*> kBad[] = {
      {"{\"a\":{" + a + ",\"dtype\":\"F32\"}}", "'dtype' twice"},
      {"{\"__metadata__\":{\"a\":1},\"a\":{" + a + "}}", "number as the value of 'a'"},
      {"{\"__metadata__\":{},\"__metadata__\":{},\"a\":{" + a + "}}", "'__metadata__' occurs twice"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "not a 64-bit integer in 'shape'"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "negative number in 'shape'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", "number in 'data_offsets'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "needs two data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "lacks"},
      {"{\"a\":{" + a + "}}" + std::string(2, '\0'), "not valid JSON"},
      {"{}", "8 bytes at its end"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "starts at 4"},
      {R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", "unknown type 'F31'"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775807,9223372036854775807,0],"data_offsets":[0,8]}})",
       "overflows"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]}})", "not a 64-bit integer"},
      {"{\"a\xff\":{" + a + "}}", "not valid JSON"},
      {R"({"a":{"dtype":"F4","shape":[15],"data_offsets":[0,8]}})", "whole byte"},
      {"{\"a\":{\"x\":" + std::string(200, '[') + std::string(200, ']') + "," + a + "}}", "nested too deeply"},
      {"{\"a\":[1]}", "array as the value of 'a'"},
  };
  for (const auto& [header, says] : kBad) {
    const auto file = parse(file_of(header, 8));
    ASSERT_FALSE(file) << header;
    EXPECT_THAT(file.error().message, HasSubstr(says)) << header;
  }
}

TEST(Safetensors, FaultyFilesOfTheFolder) {
  std::vector<std::string> accepted;
  std::size_t refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(ADZE_TEST_DATA) / "badfiles")) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = SafetensorsFile::open(entry.path());
    if (file) {
      accepted.push_back(entry.path().filename().string().substr(0, 3));
    } else {
      ++refused;
      EXPECT_FALSE(file.error().message.empty());
    }
  }
  EXPECT_THAT(accepted, ::testing::UnorderedElementsAre("S07", "S11", "S12"));
  EXPECT_EQ(refused, 11u);
}

TEST(Safetensors, WritesWhatItReads) {
  const auto path = temporary("adze_written.safetensors");
  SafetensorsWriter writer;
  const std::vector<float> floats{1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> integers{7, -8};
  writer.add("layer \"0\"\n", std::vector<std::int64_t>{2, 3}, floats);
  writer.add("ids", std::vector<std::int64_t>{2}, integers);
  writer.add_metadata("made by", "adze");
  ASSERT_TRUE(writer.write(path));
  auto opened = SafetensorsFile::open(path);
  ASSERT_TRUE(opened) << opened.error().message;
  const SafetensorsFile file = std::move(*opened);
  ASSERT_NE(file.find("layer \"0\"\n"), nullptr);
  EXPECT_EQ(file.find("absent"), nullptr);
  const auto view = file.find("layer \"0\"\n")->view();
  ASSERT_TRUE(view);
  EXPECT_EQ(view->type, tensor::DType::f32);
  EXPECT_EQ(view->shape.rank, 2);
  EXPECT_EQ(view->columns(), 3);
  EXPECT_TRUE(std::ranges::equal(view->bytes, std::as_bytes(std::span(floats))));
  EXPECT_EQ(file.find("ids")->dtype, "I32");
  EXPECT_THAT(file.metadata(), ElementsAre(std::pair<std::string, std::string>("made by", "adze")));
  const auto report = inspect(path);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->elements, 8u);
  EXPECT_EQ(report->totals.front().type, "F32");
  std::filesystem::remove(path);
}

TEST(Npy, RoundTripsAndChecks) {
  const auto path = temporary("adze_written.npy");
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{6}, {2, 3}, {3, 1, 2}}) {
    ASSERT_TRUE(write_npy(path, shape, values));
    const auto array = open_npy(path);
    ASSERT_TRUE(array) << array.error().message;
    EXPECT_EQ(array->shape, shape);
    EXPECT_THAT(array->values, ::testing::ElementsAreArray(values));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array->values.data()) % 64, 0u);
  }
  const std::string whole = read_file(path, 1000).value();
  for (std::size_t size = whole.size(); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    EXPECT_FALSE(open_npy(path)) << size;
  }
  std::string doubles = whole;
  doubles.replace(doubles.find("<f4"), 3, "<f8");
  ASSERT_TRUE(write_file_atomic(path, doubles));
  EXPECT_EQ(open_npy(path).error().code, ErrorCode::unsupported_type);
  std::filesystem::remove(path);
}

TEST(Inspect, ShowsAGgufFile) {
  const auto bad = std::filesystem::path(ADZE_TEST_DATA) / "badfiles";
  const auto report = inspect(bad / "L19_unknown_arch.gguf");
  ASSERT_TRUE(report);
  EXPECT_EQ(report->format, "GGUF version 3");
  EXPECT_EQ(report->architecture, "zz-never-heard-of");
  ASSERT_EQ(report->metadata.size(), 1u);
  EXPECT_EQ(report->metadata[0].value, "zz-never-heard-of");
  EXPECT_EQ(inspect(bad / "README.md").error().code, ErrorCode::not_a_model);
  EXPECT_EQ(inspect(bad / "absent").error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace adze::format

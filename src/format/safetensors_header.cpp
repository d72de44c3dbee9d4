// Parsed as a stream of events rather than into a tree: memory stays proportional to the tensors named, whatever a
// header nests or repeats, and a key that occurs twice is seen.
#include "format/safetensors_header.hpp"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/limits.hpp"
#include "format/metadata.hpp"

namespace adze::format {
namespace {

class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader take() { return std::move(header_); }
  const std::string& problem() const { return problem_; }

  bool null() override {
    if (skipping()) return value_skipped();
    // `"__metadata__": null` is the same as none.
    if (state_ == State::top && name_ == "__metadata__") return true;
    return unexpected("null");
  }
  bool boolean(bool) override { return skipping() ? value_skipped() : unexpected("a boolean"); }
  bool number_integer(number_integer_t) override {
    return skipping() ? value_skipped() : unexpected("a negative number");
  }
  bool number_float(number_float_t, const string_t&) override {
    return skipping() ? value_skipped() : unexpected("a number that is not a 64-bit integer");
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (skipping()) return value_skipped();
    if (state_ == State::shape) {
      header_.tensors.back().shape.push_back(value);
      return true;
    }
    if (state_ == State::offsets && offsets_seen_ < 2) {
      header_.tensors.back().offsets[static_cast<std::size_t>(offsets_seen_++)] = value;
      return true;
    }
    return unexpected("a number");
  }
  bool string(string_t& value) override {
    if (skipping()) return value_skipped();
    if (state_ == State::metadata) {
      header_.metadata.emplace_back(std::move(name_), std::move(value));
      return true;
    }
    if (state_ == State::tensor && field_ == "dtype") {
      header_.tensors.back().dtype = std::move(value);
      return true;
    }
    return unexpected("a string");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool start_object(std::size_t) override {
    if (skipping()) return deeper();
    if (state_ == State::start) {
      state_ = State::top;
      return true;
    }
    if (state_ != State::top) return unexpected("an object");
    if (name_ == "__metadata__") {
      state_ = State::metadata;
      return true;
    }
    state_ = State::tensor;
    fields_seen_ = 0;
    header_.tensors.emplace_back().name = name_;
    return true;
  }

  bool key(string_t& value) override {
    if (skipping()) return true;
    if (state_ != State::tensor) {
      name_ = std::move(value);
      if (state_ == State::top && name_ == "__metadata__" && std::exchange(metadata_seen_, true)) {
        return refuse("'__metadata__' occurs twice");
      }
      return true;
    }
    field_ = std::move(value);
    const unsigned bit = field_ == "dtype"          ? kDtype
                         : field_ == "shape"        ? kShape
                         : field_ == "data_offsets" ? kOffsets
                                                    : 0;
    if ((fields_seen_ & bit) != 0) return refuse(fmt::format("{} has '{}' twice", tensor_name(), field_));
    fields_seen_ |= bit;
    if (bit == 0) skip_depth_ = 1;  // a field of a later version: its value is read over
    return true;
  }

  bool end_object() override {
    if (skipping()) return shallower();
    if (state_ == State::tensor && fields_seen_ != (kDtype | kShape | kOffsets)) {
      return refuse(fmt::format("{} lacks a dtype, a shape or data_offsets", tensor_name()));
    }
    state_ = state_ == State::top ? State::start : State::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (skipping()) return deeper();
    if (state_ != State::tensor || field_ == "dtype") return unexpected("an array");
    state_ = field_ == "shape" ? State::shape : State::offsets;
    offsets_seen_ = 0;
    return true;
  }

  bool end_array() override {
    if (skipping()) return shallower();
    if (state_ == State::offsets && offsets_seen_ != 2)
      return refuse(fmt::format("{} needs two data_offsets", tensor_name()));
    state_ = State::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("is not valid JSON at byte {}", position));
  }

 private:
  enum class State { start, top, metadata, tensor, shape, offsets };
  static constexpr unsigned kDtype = 1, kShape = 2, kOffsets = 4;

  // skip_depth_ is 0 outside an unknown field, 1 before its value, and one more per container inside.
  bool skipping() const { return skip_depth_ > 0; }
  bool value_skipped() {
    if (skip_depth_ == 1) skip_depth_ = 0;
    return true;
  }
  bool deeper() { return ++skip_depth_ <= limits::kSafetensorsMaxDepth || refuse("is nested too deeply"); }
  bool shallower() {
    --skip_depth_;
    return value_skipped();
  }

  std::string tensor_name() const { return fmt::format("tensor '{}'", printable(header_.tensors.back().name)); }
  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool unexpected(std::string_view what) {
    if (state_ == State::start) return refuse(fmt::format("is {}, not an object", what));
    if (state_ == State::top || state_ == State::metadata) {
      return refuse(fmt::format("has {} as the value of '{}'", what, printable(name_)));
    }
    return refuse(fmt::format("has {} in '{}' of {}", what, printable(field_), tensor_name()));
  }

  SafetensorsHeader header_;
  State state_ = State::start;
  std::string name_;   // the latest key of the header or of its metadata
  std::string field_;  // the latest key of a tensor
  unsigned fields_seen_ = 0;
  int offsets_seen_ = 0;
  int skip_depth_ = 0;
  bool metadata_seen_ = false;
  std::string problem_;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json) {
  // The parser takes a NUL for the end of its input and would not see what follows.
  if (const std::size_t nul = json.find('\0'); nul != json.npos) {
    return fail(ErrorCode::corrupt_file, fmt::format("its header is not valid JSON at byte {}", nul));
  }
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &handler)) {
    return fail(ErrorCode::corrupt_file, fmt::format("its header {}", handler.problem()));
  }
  return handler.take();
}

std::string to_json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace adze::format

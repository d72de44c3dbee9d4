#include "text/jinja/input.hpp"

#include <nlohmann/json.hpp>

#include "base/limits.hpp"

namespace adze::text::jinja {
namespace {

// Builds values from the parser's events. Containers under construction are on a stack of our own, so that depth costs
// no recursion; it is limited all the same, for those who walk the values later.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(Runtime& rt, const std::function<Origin(std::string_view)>& origin_of) : rt_(rt), origin_of_(origin_of) {}

  bool null() override { return add(Value::none()); }
  bool boolean(bool value) override { return add(Value::boolean(value)); }
  bool number_integer(number_integer_t value) override { return add(Value::integer(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<number_unsigned_t>(INT64_MAX))
      return add(Value::integer(static_cast<std::int64_t>(value)));
    return add(make_integer(rt_, *BigInt::parse(std::to_string(value), 10)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    // Integers beyond 64 bits arrive here too; Python keeps them exact.
    if (text.find_first_of(".eE") == string_t::npos) {
      Value integer;
      if (parse_integer(rt_, text, 10, integer)) return add(std::move(integer));
    }
    return add(Value::real(value));
  }
  bool string(string_t& value) override { return add(make_string(rt_, value, origin_)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(rt_.heap.make<DictObject>()); }
  bool start_array(std::size_t) override { return open(rt_.heap.make<SequenceObject>(Kind::list)); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (open_.size() == 1) origin_ = origin_of_(name);
    keys_.back() = make_string(rt_, name, Origin::data);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    std::string reason = error.what();
    if (const std::size_t colon = reason.find("] "); colon != std::string::npos) reason.erase(0, colon + 2);
    throw Failure{ErrorCode::invalid_argument,
                  {},
                  fmt::format("the template's input is not valid JSON at byte {}: {}", position, reason),
                  0};
  }

  Value take() { return std::move(root_); }

 private:
  bool add(Value value) {
    rt_.heap.step();
    if (open_.empty())
      root_ = std::move(value);
    else if (open_.back().is(Kind::dict))
      open_.back().as<DictObject>().set(rt_, keys_.back(), std::move(value));
    else
      open_.back().as<SequenceObject>().append(std::move(value));
    return true;
  }

  bool open(Value container) {
    if (open_.size() >= static_cast<std::size_t>(limits::kTemplateMaxInputDepth))
      raise_limit(
          fmt::format("the template's input is nested more than {} levels deep", limits::kTemplateMaxInputDepth));
    open_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }

  bool close() {
    Value done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return add(std::move(done));
  }

  Runtime& rt_;
  const std::function<Origin(std::string_view)>& origin_of_;
  Origin origin_ = Origin::data;
  std::vector<Value> open_;
  std::vector<Value> keys_;  // the last key of each open object
  Value root_;
};

}  // namespace

Value read_json_object(Runtime& rt, std::string_view json, const std::function<Origin(std::string_view)>& origin_of) {
  Reader reader(rt, origin_of);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  Value root = reader.take();
  if (!root.is(Kind::dict))
    throw Failure{ErrorCode::invalid_argument, {}, "the template's input must be a JSON object", 0};
  return root;
}

}  // namespace adze::text::jinja

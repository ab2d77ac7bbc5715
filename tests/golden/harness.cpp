#include "tests/golden/harness.h"

#include <fstream>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::golden {

std::string Case::text(std::string_view name) const {
  const Json value = field(name);
  return value.is_string() ? value.get<std::string>() : "";
}

Json Case::field(std::string_view name) const {
  const auto found = in.find(name);
  return found == in.end() ? Json() : *found;
}

Outcome Outcome::of_value(Json value) { return {Kind::Value, std::move(value), "", ""}; }

Outcome Outcome::of_error(std::string type, std::string message) {
  return {Kind::Error, Json(), std::move(type), std::move(message)};
}

Outcome Outcome::does_not_compile(std::string why) { return {Kind::DoesNotCompile, Json(), "", std::move(why)}; }

Outcome Outcome::not_yet(std::string what) { return {Kind::NotYet, Json(), "", std::move(what)}; }

Json Outcome::as_answer_of_worker() const {
  if (kind == Kind::Value) return value;
  return {{"error", {{"type", type}, {"message", text}}}};
}

std::string Outcome::describe() const {
  switch (kind) {
    case Kind::Value:
      return value.dump();
    case Kind::Error:
      return type + ": " + text;
    case Kind::DoesNotCompile:
      return "does not compile: " + text;
    case Kind::NotYet:
      return "not yet: " + text;
  }
  return "";
}

std::vector<Case> load_cases(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw HarnessError("[lockstep_golden] the file cannot be read: path=" + path);
  const Json document = Json::parse(file);
  std::vector<Case> cases;
  for (const Json& entry : document.at("cases")) {
    Case one;
    one.topic = document.at("topic");
    one.id = entry.at("id");
    one.call = entry.at("call");
    one.in = entry.at("in");
    if (entry.contains("error")) {
      one.error_type = entry["error"].at("type");
      one.error_message = entry["error"].at("message");
    } else {
      one.out = entry.at("out");
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

Outcome run_driver(const Driver& driver, const Case& test_case) {
  try {
    return driver(test_case);
  } catch (const c10::ValueError& e) {
    return Outcome::of_error("ValueError", e.what_without_backtrace());
  } catch (const c10::TypeError& e) {
    return Outcome::of_error("TypeError", e.what_without_backtrace());
  } catch (const c10::IndexError& e) {
    return Outcome::of_error("IndexError", e.what_without_backtrace());
  } catch (const c10::NotImplementedError& e) {
    return Outcome::of_error("NotImplementedError", e.what_without_backtrace());
  } catch (const ContextError& e) {
    return Outcome::of_error("ContextError", e.what_without_backtrace());
  } catch (const CollectiveError& e) {
    return Outcome::of_error("CollectiveError", e.what_without_backtrace());
  } catch (const InternalError& e) {
    return Outcome::of_error("InternalError", e.what_without_backtrace());
  } catch (const c10::Error& e) {
    return Outcome::of_error("Error", e.what_without_backtrace());
  } catch (const DoesNotCompile& e) {
    return Outcome::does_not_compile(e.what());
  } catch (const HarnessError& e) {
    return Outcome::of_error("Harness", e.what());
  } catch (const Json::exception& e) {
    return Outcome::of_error("Harness", e.what());
  } catch (const std::exception& e) {
    return Outcome::of_error("std::exception", e.what());
  }
}

}  // namespace lockstep::golden

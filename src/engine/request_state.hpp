// Where a request is, and where it may go from there. Any other move is our bug.
#pragma once

#include <cstdint>
#include <string_view>

namespace adze::engine {

enum class RequestState : std::uint8_t {
  waiting,    // nothing is computed
  running,    // has pages, gets rows
  preempted,  // gave its pages back; its tokens stay, and it goes on when there is room
  finished,   // to its own end
  cancelled,
  failed,
};

constexpr std::string_view state_name(RequestState state) {
  switch (state) {
    case RequestState::waiting: return "waiting";
    case RequestState::running: return "running";
    case RequestState::preempted: return "preempted";
    case RequestState::finished: return "finished";
    case RequestState::cancelled: return "cancelled";
    case RequestState::failed: return "failed";
  }
  return "";
}

constexpr bool ended(RequestState state) {
  return state == RequestState::finished || state == RequestState::cancelled || state == RequestState::failed;
}

constexpr bool may_move(RequestState from, RequestState to) {
  switch (from) {
    case RequestState::waiting:
    case RequestState::preempted: return to == RequestState::running || ended(to);
    case RequestState::running: return to == RequestState::preempted || ended(to);
    case RequestState::finished:
    case RequestState::cancelled:
    case RequestState::failed: return false;
  }
  return false;
}

}  // namespace adze::engine

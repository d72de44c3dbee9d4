// Where threads meet: requests come in, events go out, and one thread at a time makes the steps. Whoever waits for an
// event and finds nobody stepping does it, for everybody; so an engine needs no thread of its own. Everything behind
// the desk is single-threaded.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "engine/host.hpp"
#include "engine/request_loop.hpp"

namespace adze::engine {

// One request on its way. Its owner's thread reads it through the desk.
struct Ticket {
  RequestId id = 0;
  std::uint64_t seed = 0;
  std::function<bool()> cancelled;                      // GenerateOptions; asked by the owner's thread
  double submitted = 0, first_token = 0, finished = 0;  // Host::seconds
  std::deque<RequestEvent> events;
  bool ended = false;  // its last event is among `events`, or was taken
  bool cancel_asked = false;
};

class Desk {
 public:
  // Both outlive the desk.
  Desk(RequestLoop& loop, const Host& host) : loop_(loop), host_(host) {}

  // Requests of one call get ids in order and are planned together. `start_within` and `finish_within` of the specs are
  // relative and become deadlines here. Errors: limit_exceeded when the waiting line is full, with its length.
  struct Order {
    RequestSpec spec;
    std::uint64_t seed = 0;
    std::function<bool()> cancelled{};
    bool copy = false;  // of the one before, whose prompt it shares
  };
  Result<std::vector<std::shared_ptr<Ticket>>> submit(std::vector<Order> orders);
  void cancel(Ticket& ticket);
  // The same, and when it returns no step is in the request's callbacks any more.
  void drop(Ticket& ticket);
  // Waits for the ticket's next event and moves it to `event`. False: it has ended, and its last event was taken.
  bool next(Ticket& ticket, RequestEvent& event);

  // Runs `work` while no step is made: it may use everything behind the desk.
  template <class F>
  auto alone(F work) {
    const Turn turn(*this);
    return work();
  }

 private:
  // The turn of one thread to use what is behind the desk.
  class Turn {
   public:
    explicit Turn(Desk& desk);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Desk& desk_;
  };
  void ask_to_cancel(Ticket& ticket);
  void settle(std::unique_lock<std::mutex>& lock);
  std::vector<RequestId> take_in(std::unique_lock<std::mutex>& lock);
  void make_step(std::unique_lock<std::mutex>& lock);
  void deliver(std::vector<RequestEvent>& events, double now);

  RequestLoop& loop_;
  Host host_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;          // somebody has the turn, or makes a step
  int turns_wanted_ = 0;       // threads that wait for a turn
  int steppers_ = 0;           // threads that wait for an event
  bool step_is_next_ = false;  // turns and steps alternate while both are wanted
  bool has_deadlines_ = false;
  double now_ = 0;  // the latest that was read of the clock
  RequestId last_id_ = 0;
  std::size_t waiting_ = 0;  // in the loop, after its last step
  std::vector<RequestSpec> inbox_;
  std::vector<RequestId> cancels_;
  std::vector<std::shared_ptr<Ticket>> tickets_;  // not ended
};

}  // namespace adze::engine

#include "placement/equations.h"

#include <algorithm>
#include <cmath>

namespace abacus::placement {
namespace {

// The sums of a placement that do not change from one iteration to the next.
struct Sums {
  double client_work = 0;
  double server_work = 0;
  double network_s = 0;
  double own_stall_s = 0;
};

Sums SumsOf(const Stack& stack, const Sides& sides) {
  Sums sums;
  for (size_t j = 0; j < stack.layers.size(); ++j) {
    (sides[j] == Side::kClient ? sums.client_work : sums.server_work) += stack.layers[j].work;
    sums.own_stall_s += stack.layers[j].own_stall_s;
    if (j > 0 && sides[j - 1] != sides[j]) {
      sums.network_s += StallTime(stack.flows[j - 1], stack.link);
    }
  }
  return sums;
}

Terms TermsOf(const Sums& sums, const PerSide& rates) {
  return {.client_cpu_s = ProcessingTime(sums.client_work, rates.client),
          .network_s = sums.network_s,
          .server_cpu_s = ProcessingTime(sums.server_work, rates.server),
          .own_stall_s = sums.own_stall_s};
}

PerSide RatesAt(const Stack& stack, const PerSide& loads) {
  return {.client = EffectiveRate(stack.client, loads.client),
          .server = EffectiveRate(stack.server, loads.server)};
}

// The fraction of `response_s` that `work` keeps one core of the host busy. Without work it is 0
// even where the response time is 0 too.
double Share(double work, const Host& host, double response_s) {
  return work == 0 ? 0 : work / (host.rate * response_s);
}

}  // namespace

Sides SidesOfSplit(int k, size_t objects) {
  Sides sides(objects, Side::kServer);
  std::fill_n(sides.begin(), std::min(objects, static_cast<size_t>(k + 1)), Side::kClient);
  return sides;
}

double ResponseTime(absl::Span<const double> processing_s, absl::Span<const double> stall_s) {
  double total_s = 0;
  for (double p : processing_s) total_s += p;
  for (double c : stall_s) total_s += c;
  return total_s;
}

double WorkOf(double cpu_s, double rate) { return cpu_s * rate; }

double EffectiveRate(const Host& host, double load) {
  return host.rate / SlowDown(load, host.cores, host.contention);
}

double SlowDown(double load, double cores, double contention) {
  return 1 + contention * (std::max(1.0, std::max(1.0, load) / cores) - 1);
}

double ProcessingTime(double work, double effective_rate) { return work / effective_rate; }

double StallTime(const Flow& flow, const Link& link) {
  const double more_bytes = std::max(0.0, flow.bytes - flow.calls * link.round_trip_bytes);
  return flow.calls * link.round_trip_s + more_bytes / link.bandwidth_bytes_s;
}

Terms TermsAtRates(const Stack& stack, const Sides& sides, const PerSide& rates) {
  return TermsOf(SumsOf(stack, sides), rates);
}

Terms TermsAtLoads(const Stack& stack, const Sides& sides, const PerSide& loads) {
  return TermsAtRates(stack, sides, RatesAt(stack, loads));
}

double LoadOfPlacement(const Stack& stack, Side side, const Sides& from, const Sides& to,
                       double load_from, double response_s) {
  double arriving = 0;
  double leaving = 0;
  for (size_t j = 0; j < stack.layers.size(); ++j) {
    if (from[j] == to[j]) continue;
    (to[j] == side ? arriving : leaving) += stack.layers[j].work;
  }
  const Host& host = side == Side::kClient ? stack.client : stack.server;
  return std::max(0.0,
                  load_from + Share(arriving, host, response_s) - Share(leaving, host, response_s));
}

PerSide LoadOfOthers(const Stack& stack, const Sides& present, const PerSide& measured,
                     double window_s) {
  const Sides all_client(present.size(), Side::kClient);
  const Sides all_server(present.size(), Side::kServer);
  return {.client =
              LoadOfPlacement(stack, Side::kClient, present, all_server, measured.client, window_s),
          .server = LoadOfPlacement(stack, Side::kServer, present, all_client, measured.server,
                                    window_s)};
}

Prediction Predict(const Stack& stack, const Sides& sides, const PerSide& others,
                   const FixedPointOptions& options) {
  const Sums sums = SumsOf(stack, sides);
  // Equation 5 from a placement with nothing on the node: all of the stack's work there arrives.
  const auto loads_at = [&](double response_s) {
    PerSide loads = others;
    loads.server += Share(sums.server_work, stack.server, response_s);
    if (!options.client_load_constant) {
      loads.client += Share(sums.client_work, stack.client, response_s);
    }
    return PerSide{std::max(1.0, loads.client), std::max(1.0, loads.server)};
  };

  Prediction prediction;
  double response_s = TermsOf(sums, RatesAt(stack, others)).Total();
  double last_distance_s = INFINITY;
  prediction.converged = false;
  while (prediction.iterations < options.iterations_max) {
    ++prediction.iterations;
    prediction.loads = loads_at(response_s);
    prediction.terms = TermsOf(sums, RatesAt(stack, prediction.loads));
    prediction.response_s = prediction.terms.Total();
    const double distance_s = prediction.response_s - response_s;
    if (std::abs(distance_s) <= options.tolerance * prediction.response_s) {
      prediction.converged = true;
      break;
    }
    const bool halved = std::abs(distance_s) <= last_distance_s / 2;
    response_s = halved ? prediction.response_s : response_s + distance_s / 2;
    last_distance_s = std::abs(distance_s);
  }
  return prediction;
}

}  // namespace abacus::placement

// LabPlay: everything that scripts/lab shows: the real gradients on two DGX A100 nodes, then every scenario file on
// real threads, and on a thread of lowest priority beside it the simulator's figures of the same files. Owner: the
// control thread. Fails: InputError for files that cannot be read or do not fit, before anything runs. Times in ns.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/lab_run.hpp"
#include "agent/lab_table.hpp"
#include "agent/scenario.hpp"

namespace lk {

struct LabStory {
  Scenario scenario;
  ClusterSpec cluster;  // at its own rates
};

struct LabSetting {
  LabThreads threads;
  MachineCores machine;
  AgentConfig config;
  ControlOptions control;
  double scale = 1;
  std::function<void(const std::string& what, const LabReport& sofar)> progress;
};

// All scenario files of a folder with their clusters, healthy ones first. `only`: the one with that name or file name.
std::vector<LabStory> lab_stories(const std::string& folder, const std::string& only);
// The one scale at which each story's links together stay under a quarter of the memory's rate; 1 at most.
double lab_scale(const std::vector<LabStory>& stories, GBps memory);

// An op's deadline at such rates, in ns: an op may take as much longer as they are slower.
Nanos lab_deadline(Nanos usual, double scale);

// What a person would do first: F32 over all GPUs, F16 and BF16 over as many as there are files.
LabRow play_gradients(const LabSetting& setting, LabGradients& gradients);
LabRow play_story(const LabSetting& setting, LabGradients& gradients, const LabStory& story);

// Fills in the simulator's figures.
void add_figures(LabRow& row, const Scenario& scenario);

}  // namespace lk

// SPDX-License-Identifier: GPL-3.0-or-later
// The default strategy: kernels as C++ on CPU fibers (fibers.h), compiled by the machine's own compiler into
// a shared library, which is the "machine code".
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "runtime.h"

extern char** environ;

namespace standin {

namespace {

constexpr int COMPILATION_FAILED = 6, INTERNAL_ERROR = 11;  // of hiprtcResult

// A folder that goes when this does.
struct Folder {
  std::string path;
  Folder() {
    const char* base = std::getenv("TMPDIR");
    path = std::string(base ? base : "/tmp") + "/standin-XXXXXX";
    if (!mkdtemp(path.data())) path.clear();
  }
  ~Folder() {
    for (const char* name : {"/kernel.cpp", "/kernel.so", "/log"}) unlink((path + name).c_str());
    rmdir(path.c_str());
  }
};

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The exit status of a command whose output goes to a file; -1 if it cannot be run.
int run(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child;
  const int failed = posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// Every kernel of a source, KERNEL(name, threads), outside of macro definitions.
std::vector<std::string> kernels(const std::string& source) {
  std::vector<std::string> names;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("KERNEL(", 0) == 0) {
      const std::string name = line.substr(7, line.find(',') - 7);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  return names;
}

// Of libamdhip64.so.
std::string library_folder() {
  Dl_info info{};
  dladdr((void*)&library_folder, &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

// Where WAVEFRONT_TEST_CACHE keeps the code of a source; empty without that variable. The name has everything
// that the code depends on.
std::string kept_path(const std::vector<std::string>& options, const std::string& source) {
  const char* folder = std::getenv("WAVEFRONT_TEST_CACHE");
  if (!folder) return {};
  std::string all = __VERSION__ + source;
  for (const std::string& option : options) all += '\n' + option;
  return std::string(folder) + "/fibers-" + std::to_string(std::hash<std::string>{}(all)) + ".so";
}

int compile(const char* source, const char*, const char* const* options, int count, void* result) {
  const Folder folder;
  std::string target = "none";
  std::vector<std::string> passed;
  for (int i = 0; i < count; i++) {
    const std::string option = options[i];
    if (option.rfind("--offload-arch=", 0) == 0) target = option.substr(15);
    if (option.rfind("-D", 0) == 0 || option.rfind("-std=", 0) == 0) passed.push_back(option);
  }
  std::ostringstream file;
  file << source << "\nextern \"C\" const char standin_target[] = \"" << target << "\";\n";
  for (const std::string& name : kernels(source))
    file << "extern \"C\" int standin_launch_" << name
         << "(const unsigned* grid, int threads, unsigned long shared_bytes, const void* arguments) {\n"
         << "  return fibers::launch_packed(" << name << ", grid, threads, shared_bytes, arguments);\n}\n";
  const std::string wave = target.rfind("gfx9", 0) == 0 ? "64" : "32";
  // standin.py has put fibers.h beside this library, precompiled for each wave with these same flags.
  const std::string header = library_folder() + "/wave" + wave + "/fibers.h";
  std::vector<std::string> command{"c++",     "-O1",
                                   "-w",      "-fno-strict-aliasing",
                                   "-fPIC",   "-DWAVEFRONT_CPU",
                                   "-shared", "-DWAVEFRONT_CPU_WAVE=" + wave};
  command.insert(command.end(), passed.begin(), passed.end());
  const std::string kept = kept_path(command, read(header) + file.str());
  const std::string found = kept.empty() ? "" : read(kept);
  if (!found.empty()) {
    standin_deliver(result, found.data(), found.size(), "");
    return SUCCESS;
  }
  std::ofstream(folder.path + "/kernel.cpp") << file.str();
  command.insert(command.end(),
                 {"-include", header, folder.path + "/kernel.cpp", "-o", folder.path + "/kernel.so"});
  const int status = run(command, folder.path + "/log");
  const std::string log = status < 0 ? "c++ cannot be run" : read(folder.path + "/log");
  const std::string code = status == 0 ? read(folder.path + "/kernel.so") : "";
  if (status == 0 && !kept.empty()) {
    const std::string unfinished = kept + "." + std::to_string(getpid());
    std::ofstream(unfinished, std::ios::binary) << code;
    std::rename(unfinished.c_str(), kept.c_str());
  }
  standin_deliver(result, code.data(), code.size(), log.c_str());
  return status == 0 ? SUCCESS : status < 0 ? INTERNAL_ERROR : COMPILATION_FAILED;
}

int load(const void* code, std::size_t bytes, const char* target, void** module) {
  const Folder folder;
  const std::string path = folder.path + "/kernel.so";
  std::ofstream(path, std::ios::binary).write((const char*)code, (std::streamsize)bytes);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return INVALID_IMAGE;
  const auto* compiled_for = (const char*)dlsym(library, "standin_target");
  if (!compiled_for || std::string(compiled_for) != target) {
    dlclose(library);
    return compiled_for ? NO_BINARY_FOR_GPU : INVALID_IMAGE;
  }
  *module = library;
  return SUCCESS;
}

int function(void* module, const char* name, void** found) {
  *found = dlsym(module, (std::string("standin_launch_") + name).c_str());
  return *found ? SUCCESS : NOT_FOUND;
}

int launch(void* kernel, const unsigned* grid, const unsigned* block, unsigned shared_bytes,
           const void* arguments, std::size_t) {
  using Launcher = int (*)(const unsigned*, int, unsigned long, const void*);
  return ((Launcher)kernel)(grid, (int)(block[0] * block[1] * block[2]), shared_bytes, arguments);
}

void unload(void* module) {
  dlclose(module);
}

}  // namespace

const standin_strategy& fiber_strategy() {
  static const standin_strategy fibers{compile, load, function, launch, unload};
  return fibers;
}

}  // namespace standin

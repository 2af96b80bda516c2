// SPDX-License-Identifier: GPL-3.0-or-later
// wavefront.exe, wavefront-evaluator.exe and wavefront-training.exe of the Windows archive: start the program of that
// name with the Python next to them. One file, three names.
//
// Everything that it starts ends with it (a job object). It passes standard streams, arguments and exit status on. It
// opens no window of its own: without a console the program gets none either. Started by a click, `wavefront` shows
// its board in the browser.
#ifndef UNICODE
#define UNICODE
#endif
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

#define MOST_CHARACTERS 32768  // Of a path or a command line on Windows, with the final zero.
#define DEEPEST 130            // Longest path below this folder, with room for those of caches.

static HANDLE child;

// The program receives the same event and ends by itself. A closed console ends this process when the function returns.
static BOOL WINAPI on_console_event(DWORD event) {
  if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) WaitForSingleObject(child, 10000);
  return TRUE;
}

static int fail(const wchar_t* what) {
  fwprintf(stderr, L"wavefront: %ls failed with Windows error %lu\n", what, GetLastError());
  return 1;
}

// Returns the command line behind the program's name, which ends at a blank outside quotation marks.
static const wchar_t* arguments_of(const wchar_t* line) {
  BOOL quoted = FALSE;
  for (; *line && (quoted || (*line != L' ' && *line != L'\t')); line++) quoted ^= *line == L'"';
  while (*line == L' ' || *line == L'\t') line++;
  return line;
}

// True if the Explorer started this: the console belongs to this process alone, and nothing is redirected.
static BOOL is_clicked(void) {
  DWORD processes[2];
  return GetConsoleProcessList(processes, 2) == 1 && GetFileType(GetStdHandle(STD_INPUT_HANDLE)) == FILE_TYPE_CHAR;
}

static const wchar_t* kRemoved[] = {
    L"PYTHONHOME",         L"PYTHONPLATLIBDIR",  L"PYTHONINSPECT", L"PYTHONWARNINGS", L"PYTHONIOENCODING",
    L"PYTHONLEGACYWINDOWSSTDIO", L"PYTHONHASHSEED", L"PYTHONMALLOC", L"PYTHONTRACEMALLOC", L"PYTHONOPTIMIZE",
};

int main(void) {
  static wchar_t own[MOST_CHARACTERS], python[MOST_CHARACTERS], line[MOST_CHARACTERS];
  if (!GetModuleFileNameW(NULL, own, MOST_CHARACTERS)) return fail(L"GetModuleFileName");
  wchar_t* name = wcsrchr(own, L'\\') + 1;
  const BOOL engine = !wcsstr(name, L"-evaluator") && !wcsstr(name, L"-training");
  const wchar_t* program = engine ? L"engine" : wcsstr(name, L"-evaluator") ? L"evaluator" : L"training";
  const wchar_t* arguments = arguments_of(GetCommandLineW());
  if (engine && !*arguments && is_clicked()) arguments = L"web --open";
  *name = 0;
  if (wcslen(own) + DEEPEST >= MAX_PATH) {
    fwprintf(stderr, L"wavefront: the folder's path has %zu characters, at most %d are possible: move it up\n", wcslen(own),
             MAX_PATH - DEEPEST - 1);
    return 1;
  }
  if (_snwprintf(python, MOST_CHARACTERS, L"%lspython\\python.exe", own) < 0 ||
      _snwprintf(line, MOST_CHARACTERS, L"\"%ls\" -P -X utf8 -m wavefront_launcher %ls %ls", python, program,
                 arguments) < 0) {
    SetLastError(ERROR_FILENAME_EXCED_RANGE);
    return fail(L"the command line");
  }
  for (size_t i = 0; i < sizeof(kRemoved) / sizeof(*kRemoved); i++) SetEnvironmentVariableW(kRemoved[i], NULL);

  const HANDLE job = CreateJobObjectW(NULL, NULL);
  JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
  limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
  SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof(limits));

  // The child inherits the three streams and no other handle of the GUI.
  STARTUPINFOEXW start = {0};
  start.StartupInfo.cb = sizeof(start);
  start.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
  const HANDLE streams[] = {GetStdHandle(STD_INPUT_HANDLE), GetStdHandle(STD_OUTPUT_HANDLE),
                            GetStdHandle(STD_ERROR_HANDLE)};
  start.StartupInfo.hStdInput = streams[0];
  start.StartupInfo.hStdOutput = streams[1];
  start.StartupInfo.hStdError = streams[2];
  HANDLE inherited[3];
  size_t count = 0;
  for (int i = 0; i < 3; i++) {
    if (!streams[i] || streams[i] == INVALID_HANDLE_VALUE) continue;
    if (!SetHandleInformation(streams[i], HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT)) continue;
    BOOL repeated = FALSE;  // A list with the same handle twice is refused.
    for (size_t j = 0; j < count; j++) repeated |= inherited[j] == streams[i];
    if (!repeated) inherited[count++] = streams[i];
  }
  SIZE_T size = 0;
  InitializeProcThreadAttributeList(NULL, 1, 0, &size);
  start.lpAttributeList = malloc(size);
  if (!start.lpAttributeList || !InitializeProcThreadAttributeList(start.lpAttributeList, 1, 0, &size))
    return fail(L"InitializeProcThreadAttributeList");
  if (count && !UpdateProcThreadAttribute(start.lpAttributeList, 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, inherited,
                                          count * sizeof(HANDLE), NULL, NULL))
    return fail(L"UpdateProcThreadAttribute");

  DWORD flags = CREATE_SUSPENDED | EXTENDED_STARTUPINFO_PRESENT;
  if (!GetConsoleCP()) flags |= CREATE_NO_WINDOW;
  PROCESS_INFORMATION process;
  if (!CreateProcessW(python, line, NULL, NULL, count > 0, flags, NULL, NULL, &start.StartupInfo, &process))
    return fail(python);
  child = process.hProcess;
  SetConsoleCtrlHandler(on_console_event, TRUE);
  AssignProcessToJobObject(job, child);  // Fails if a GUI's own job forbids it: then that job ends the program.
  ResumeThread(process.hThread);
  // The child alone holds the streams, so that its end is the end of the output.
  for (size_t i = 0; i < count; i++) CloseHandle(inherited[i]);
  WaitForSingleObject(child, INFINITE);
  DWORD status = 1;
  GetExitCodeProcess(child, &status);
  return (int)status;
}

#pragma once

#include <sys/types.h>

/// Processes by session: each worker of `lockstep run` leads its own, and what it starts belongs to it unless it leaves
/// for another one.
namespace lockstep::tools {

/// Returns whether a process of the session lives, ended ones that nobody has waited for not counted.
bool session_lives(pid_t session);

/// Sends the signal to every process of the session. Its number cannot have passed to strangers as long as its leader
/// was not waited for.
void signal_session(pid_t session, int signal);

}  // namespace lockstep::tools

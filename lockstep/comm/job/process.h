#pragma once

/// What becomes of open connections when the process forks.
namespace lockstep::comm::job {

/// Makes forked children get /dev/null in place of this descriptor, until it is closed below.
void keep_from_children(int descriptor);
void close_descriptor(int descriptor);

}  // namespace lockstep::comm::job

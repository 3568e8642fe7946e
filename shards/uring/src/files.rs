//! All that one ring keeps about files. Lives on the core of its ring.

use io_uring::Submitter;

use crate::file::OpenFile;
use crate::operation::Operation;
use crate::pool::Registered;
use crate::slab::Slab;
use crate::storage::SyncChoice;

/// Files open at once. Descriptors run out before.
const FILES_MAX: u32 = 65_536;

/// Operations on files in flight at once; each takes under 128 bytes. More would only wait in the kernel,
/// for whose threads and devices a few hundred are plenty.
const OPERATIONS_MAX: u32 = 4096;

pub(crate) struct Files {
    pub(crate) open: Slab<OpenFile>,
    pub(crate) operations: Slab<Operation>,
    pub(crate) registered: Registered,
    /// Of file systems without a device, by their minor number, whether they are memory. A few at most.
    pub(crate) deviceless: Vec<(u32, bool)>,
    pub(crate) sync_choice: SyncChoice,
    /// RWF_DSYNC; a test puts in what no kernel knows.
    pub(crate) write_through_flag: i32,
}

const _: () = assert!(size_of::<Operation>() <= 128, "an operation must stay small");

impl Files {
    pub(crate) fn new() -> Files {
        Files {
            open: Slab::new(FILES_MAX),
            operations: Slab::new(OPERATIONS_MAX),
            registered: Registered::new(),
            deviceless: Vec::new(),
            sync_choice: SyncChoice::WriteThrough,
            write_through_flag: libc::RWF_DSYNC,
        }
    }

    /// Gives up for ever all memory that the kernel may still read or write.
    pub(crate) fn leak(&mut self) {
        for operation in self.operations.values_mut() {
            operation.leak();
        }
    }

    /// Takes the buffers away from the kernel. Nothing may be in flight.
    pub(crate) fn unregister(&self, submitter: &Submitter<'_>) {
        self.registered.unregister(submitter);
    }
}

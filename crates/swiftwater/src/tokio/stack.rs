//! Stacks for tasks.

use std::net::IpAddr;

use streams::{Module, ModuleFactory, PushError};

use crate::error::BindError;
use crate::options::{AssociationOptions, LinkKind, StackOptions};
use crate::stack::{self, StackStatistics};

/// Sockets, one protocol instance and one lock, for any number of listeners and associations;
/// [`swiftwater::Stack`](crate::Stack) for tasks. Clones share the sockets.
///
/// ```
/// use swiftwater::StackOptions;
/// use swiftwater::tokio::Stack;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let stack = Stack::bind(&StackOptions::default().with_udp_port(0))?;
/// let listener = stack.listen(7)?;
/// let client = stack.connect(listener.address()).await?;
/// client.send(b"to myself").await?;
/// let (server, _) = listener.accept().await?;
/// assert_eq!(server.recv().await?.unwrap().to_vec(), b"to myself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stack {
    pub(crate) shared: stack::Stack,
}

impl Stack {
    /// Binds sockets as `options` specify: by default UDP port 9899 of all addresses of both families.
    ///
    /// # Errors
    ///
    /// Fails as [`swiftwater::Stack::bind`](crate::Stack::bind) does.
    pub fn bind(options: &StackOptions) -> Result<Stack, BindError> {
        stack::Stack::bind(options).map(Stack::from)
    }

    /// Returns a handle to the same sockets that sets up and accepts associations with these options.
    #[must_use]
    pub fn with_options(&self, options: &AssociationOptions) -> Stack {
        self.shared.with_options(options).into()
    }

    /// Returns a handle to the same sockets that uses only some of their addresses, as
    /// [`swiftwater::Stack::with_local_addresses`](crate::Stack::with_local_addresses) does.
    #[must_use]
    pub fn with_local_addresses(&self, local_addresses: &[IpAddr]) -> Stack {
        self.shared.with_local_addresses(local_addresses).into()
    }

    /// Adds a kind of module under a name, for [`Stream::push_named`](crate::Stream::push_named). Replaces a module that had the
    /// name before.
    pub fn add_module(&self, name: &str, factory: ModuleFactory) {
        self.shared.add_module(name, factory);
    }

    /// Creates a module by its name, for pushing or to check that name and arguments are valid.
    ///
    /// # Errors
    ///
    /// No module has the name, or the module rejects the arguments.
    pub fn make_module(&self, name: &str, arguments: &[String]) -> Result<Box<dyn Module>, PushError> {
        self.shared.make_module(name, arguments)
    }

    /// Returns the sorted names of the modules that can be pushed by name.
    pub fn module_names(&self) -> Vec<String> {
        self.shared.module_names()
    }

    /// Returns the options that the sockets were bound with, with the default options of listeners and associations that this
    /// handle opens.
    pub fn options(&self) -> &StackOptions {
        self.shared.options()
    }

    /// Returns the link that carries SCTP: never [`LinkKind::Auto`].
    pub fn link(&self) -> LinkKind {
        self.shared.link()
    }

    /// Returns a warning about the link, if there is one: raw IP was not permitted, or the kernel's own SCTP answers its packets.
    pub fn warning(&self) -> Option<&str> {
        self.shared.warning()
    }

    /// Returns the local UDP port; 0 with raw IP.
    pub fn udp_port(&self) -> u16 {
        self.shared.udp_port()
    }

    /// Returns the number of associations that exist, in any state.
    pub fn association_count(&self) -> usize {
        self.shared.association_count()
    }

    /// Returns the counters of the stack. Visits every association.
    pub fn statistics(&self) -> StackStatistics {
        self.shared.statistics()
    }
}

impl From<stack::Stack> for Stack {
    fn from(shared: stack::Stack) -> Self {
        Stack { shared }
    }
}

impl From<Stack> for stack::Stack {
    fn from(asynchronous: Stack) -> Self {
        asynchronous.shared
    }
}

//! Who listens on which port.
//!
//! Several sockets may listen on one port, each at addresses of its own, such as one for IPv4 and one for IPv6 alone. The
//! executive has one listener for each port; whose an association is, its peer's address tells.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swiftwater::tokio::{Association, Listener};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::log;
use crate::ports::Scope;

/// One socket that listens.
struct Listening {
    socket: u64,
    scope: Scope,
    queue: mpsc::Sender<Association>,
}

/// The sockets of one port.
struct Group {
    members: Vec<Listening>,
    task: JoinHandle<()>,
}

/// All ports that are listened on.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<Mutex<HashMap<u16, Group>>>);

impl Listeners {
    fn lock(&self) -> MutexGuard<'_, HashMap<u16, Group>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a socket to a port; `listen` is asked for the executive's listener if it is the first. What comes back are its
    /// associations, of which `backlog` wait here.
    pub(crate) fn add<E>(
        &self,
        port: u16,
        (socket, scope): (u64, Scope),
        backlog: usize,
        listen: impl FnOnce() -> Result<Listener, E>,
    ) -> Result<mpsc::Receiver<Association>, E> {
        let (queue, associations) = mpsc::channel(backlog);
        let member = Listening { socket, scope, queue };
        let mut groups = self.lock();
        match groups.get_mut(&port) {
            Some(group) => group.members.push(member),
            None => {
                let listener = listen()?;
                let task = tokio::spawn(self.clone().distribute(port, listener));
                groups.insert(port, Group { members: vec![member], task });
            }
        }
        Ok(associations)
    }

    /// A socket listens no more. With the last of a port the executive does not either, once the task that comes back has
    /// ended.
    pub(crate) fn remove(&self, port: u16, socket: u64) -> Option<JoinHandle<()>> {
        let mut groups = self.lock();
        let group = groups.get_mut(&port)?;
        group.members.retain(|member| member.socket != socket);
        if !group.members.is_empty() {
            return None;
        }
        let task = groups.remove(&port)?.task;
        task.abort();
        Some(task)
    }

    async fn distribute(self, port: u16, listener: Listener) {
        loop {
            let association = match listener.accept().await {
                Ok(association) => association,
                Err(error) => return log(format_args!("listening on port {port} has failed: {error}")),
            };
            // One that is gone already has nobody to tell.
            let Some(peer) = association.peer_address() else { continue };
            match self.queue_for(port, peer.hosts[0].to_canonical()) {
                // A socket that was closed meanwhile drops it.
                Some(queue) => drop(queue.send(association).await),
                None => association.abort("nobody listens at this address"),
            }
        }
    }

    fn queue_for(&self, port: u16, peer: IpAddr) -> Option<mpsc::Sender<Association>> {
        let groups = self.lock();
        let member = groups.get(&port)?.members.iter().find(|member| member.scope.serves(peer))?;
        Some(member.queue.clone())
    }
}

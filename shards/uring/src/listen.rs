//! Makes listening sockets, one for each core on the same address. Runs at the start of each loop.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Listens on an address that several sockets of this user may share: the kernel spreads connections
/// over them.
///
/// Accepted connections inherit `TCP_NODELAY`. The unspecified IPv6 address takes IPv4 connections too.
/// `backlog` is the number of connections that may wait to be accepted; the system may lower it
/// (`net.core.somaxconn`).
///
/// # Errors
///
/// What the system says, for example that another program has the port or that it needs a privilege.
pub fn bind(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_tcp_nodelay(true)?;
    if let SocketAddr::V6(address) = address {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

//! Connections to the server, from as many loopback addresses as the number of ports asks for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::failure::Failure;

/// Connections from one address to one server: below the 28 232 ports that Linux gives out by default.
const CONNECTIONS_PER_ADDRESS: usize = 20_000;

/// How long a server may take to accept.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Connects the `number`th connection of a run, counted from 0.
///
/// # Errors
///
/// What the system says, for example that nobody listens or that no port or descriptor is left.
pub(crate) fn connect(server: SocketAddr, number: usize) -> Result<TcpStream, Failure> {
    let failed = |source| Failure::io(format!("cannot connect to {server} (connection {})", number + 1), source);
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP)).map_err(failed)?;
    socket.set_tcp_nodelay(true).map_err(failed)?;
    if let Some(source) = source_address(server.ip(), number) {
        socket.bind(&SocketAddr::from((source, 0)).into()).map_err(failed)?;
    }
    socket.connect_timeout(&server.into(), CONNECT_TIME_MAX).map_err(failed)?;
    Ok(socket.into())
}

/// The address to connect from; none to let the system choose. All of 127.0.0.0/8 is this machine, so a server on
/// IPv4 loopback can be reached from a further address for each block of connections.
fn source_address(server: IpAddr, number: usize) -> Option<Ipv4Addr> {
    let block = u8::try_from(number / CONNECTIONS_PER_ADDRESS).ok().filter(|block| *block > 0)?;
    match server {
        IpAddr::V4(address) if address.is_loopback() => Some(Ipv4Addr::new(127, 0, 1, block)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Which address a connection comes from.

    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::source_address;

    #[test]
    fn a_further_loopback_address_serves_each_block_of_connections() {
        let server = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(source_address(server, 0), None);
        assert_eq!(source_address(server, 19_999), None);
        assert_eq!(source_address(server, 20_000), Some(Ipv4Addr::new(127, 0, 1, 1)));
        assert_eq!(source_address(server, 65_000), Some(Ipv4Addr::new(127, 0, 1, 3)));
    }

    #[test]
    fn other_servers_are_reached_from_the_address_that_the_system_chooses() {
        assert_eq!(source_address(IpAddr::V6(Ipv6Addr::LOCALHOST), 50_000), None);
        assert_eq!(source_address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 50_000), None);
    }
}

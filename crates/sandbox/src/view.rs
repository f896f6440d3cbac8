//! The live view in a terminal. [`board`] computes the rows; this file draws them.

pub mod board;

use std::{io, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use ratatui::{
    Frame,
    layout::{Constraint, Layout},
    text::Line,
    widgets::Paragraph,
};
use tokio_util::sync::CancellationToken;
use windlass_terminal::{
    layout::Row,
    screen::{self, Key, Screen},
};

use self::board::Board;
use super::cluster::{Cluster, ObjectChange};

/// The shortest time between two draws of the screen.
const FRAME: Duration = Duration::from_millis(100);

/// Shows the cluster until the user quits or `shutdown`, with `heading` at the top. The terminal is restored, also
/// after errors and panics.
pub async fn show(
    mut changes: BoxStream<'static, ObjectChange>,
    heading: &[String],
    colour: bool,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let mut screen = Screen::open()?;
    let mut cluster = Cluster::default();
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut stale = true;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            key = screen.key() => match key {
                Key::Char('q') | Key::Interrupt => return Ok(()),
                _ => stale = true,
            },
            Some(change) = changes.next() => {
                cluster.observe(change);
                stale = true;
            }
            _ = frames.tick() => if stale {
                screen.terminal.draw(|frame| draw(frame, &cluster, heading, colour))?;
                stale = false;
            },
        }
    }
}

fn draw(frame: &mut Frame<'_>, cluster: &Cluster, heading: &[String], colour: bool) {
    let area = frame.area();
    let heading: Vec<Line<'_>> = heading.iter().map(|line| Line::from(line.as_str())).collect();
    let layout = Layout::vertical([
        Constraint::Length(u16::try_from(heading.len()).unwrap_or(u16::MAX).saturating_add(1)),
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let [top, middle, bottom, foot] = layout.areas(area);
    let styled = |rows: Vec<Row>| {
        Paragraph::new(rows.iter().map(|row| screen::line(row, colour)).collect::<Vec<Line<'_>>>())
    };
    frame.render_widget(Paragraph::new(heading), top);
    let board = Board { width: usize::from(area.width) };
    frame.render_widget(styled(board.workloads(cluster, usize::from(middle.height))), middle);
    frame.render_widget(styled(board.events(cluster, usize::from(bottom.height))), bottom);
    frame.render_widget(Paragraph::new("q: quit"), foot);
}

//! The live tree in a terminal.

use ratatui::{text::Line, widgets::Paragraph};
use windlass_terminal::layout::{Row, Tone, indented};
use windlass_terminal::screen::{self, Key, Screen as Terminal};

use super::View;
use super::follower::Follower;
use super::tree;
use crate::exit::CommandError;
use crate::output::Style;

/// The terminal, and what it shows.
pub struct Screen {
    terminal: Terminal,
    style: Style,
    top: u16,
    rows: Vec<Row>,
    is_stale: bool,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// When it refuses raw mode.
    pub fn open(style: Style) -> Result<Self, CommandError> {
        let terminal = Terminal::open().map_err(CommandError::Terminal)?;
        Ok(Screen { terminal, style, top: 0, rows: Vec::new(), is_stale: true })
    }

    /// Draws the trees if there is news and they have changed.
    ///
    /// # Errors
    /// When the terminal cannot be written.
    pub fn draw(&mut self, followers: &[Follower], is_news: bool) -> Result<(), CommandError> {
        if !is_news && !self.is_stale {
            return Ok(());
        }
        let (width, _) = self.terminal.size();
        let unreadable = followers.iter().filter_map(Follower::assessment).flat_map(|assessment| {
            let label = format!("{}/{}", assessment.namespace, assessment.name);
            let missing = assessment.unreadable.iter();
            missing.flat_map(move |why| indented(&format!("{label}: {why}"), Tone::Bad, "", width))
        });
        let assessments = followers.iter().filter_map(Follower::assessment);
        let rows: Vec<Row> = unreadable
            .chain(assessments.flat_map(|assessment| tree::rows(assessment, self.style, Some(width))))
            .chain(
                followers
                    .iter()
                    .filter_map(Follower::lasting_line)
                    .flat_map(|trouble| indented(&trouble, Tone::Bad, "", width)),
            )
            .collect();
        if rows == self.rows && !self.is_stale {
            return Ok(());
        }
        (self.rows, self.is_stale) = (rows, false);
        let colour = self.style.colour;
        let mut lines: Vec<Line<'_>> = self.rows.iter().map(|row| screen::line(row, colour)).collect();
        lines.push(Line::from(""));
        lines.push(Line::from("q: leave (the rollout goes on)"));
        let top = self.top;
        let drawn = self.terminal.terminal.draw(|frame| {
            frame.render_widget(Paragraph::new(lines).scroll((top, 0)), frame.area());
        });
        drawn.map(drop).map_err(CommandError::Terminal)
    }

    /// Gives the terminal back; returns the last frame as text.
    pub fn close(self) -> String {
        let line = |row: &Row| {
            let text: String = row.iter().map(|(part, _)| part.as_str()).collect();
            format!("{}\n", text.trim_end())
        };
        self.rows.iter().map(line).collect()
    }
}

/// Resolves when the user quits a live view; never for another one.
pub async fn quit(view: &mut View) {
    let View::Screen(screen) = view else { return std::future::pending().await };
    loop {
        match screen.terminal.key().await {
            Key::Char('q') | Key::Interrupt => return,
            Key::Up => screen.top = screen.top.saturating_sub(1),
            Key::Down => {
                let last = u16::try_from(screen.rows.len()).unwrap_or(u16::MAX);
                screen.top = screen.top.saturating_add(1).min(last);
            }
            Key::Resized => {}
            _ => continue,
        }
        // Drawn at the next tick.
        screen.is_stale = true;
    }
}

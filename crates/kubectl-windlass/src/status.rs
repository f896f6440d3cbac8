//! `status`: follows rollouts to their end.

mod follower;
mod github;
mod json;
mod lines;
mod screen;
mod tree;
mod verdicts;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::Api;
use crate::cli::{Format, GlobalArgs, StatusArgs};
use crate::connection::connect;
use crate::exit::{CommandError, Exit};
use crate::output::Output;
use crate::target;
use crate::text::json as json_line;
use follower::{Follower, Message};
use github::GitHub;
use verdicts::End;

/// How often changes are assessed, and how long a change waits at most.
const TICK: Duration = Duration::from_millis(250);

/// How the state of the rollouts is shown.
enum View {
    /// A line for each change.
    Lines(Vec<lines::Lines>),
    /// A JSON object for each change.
    Json(Vec<json::Stream>),
    /// A live tree.
    Screen(screen::Screen),
}

/// Runs `status`.
///
/// # Errors
/// When an object cannot be found or read, or the terminal cannot be used.
pub async fn run(global: &GlobalArgs, args: StatusArgs, output: &mut Output) -> Result<Exit, CommandError> {
    let targets = target::targets(&args.objects)?;
    let connection = connect(global, &|name| std::env::var(name).ok()).await?;
    let api = Arc::new(Api::new(connection, global.request_timeout));
    target::refuse_owned(&api, &targets).await?;
    let keys = target::workloads(&api, &targets, &args.objects).await?;
    let (sender, mut messages) = mpsc::channel(1024);
    let mut followers: Vec<Follower> = keys
        .into_iter()
        .enumerate()
        .map(|(index, key)| Follower::start(index, key, args.watch, &api, &sender))
        .collect();
    let mut view = match args.output {
        Format::Json => View::Json(followers.iter().map(|_| json::Stream::default()).collect()),
        Format::Text if output.is_interactive && args.watch && !args.plain => {
            View::Screen(screen::Screen::open(output.style)?)
        }
        Format::Text => View::Lines(followers.iter().map(|_| lines::Lines::default()).collect()),
    };
    let ended = follow(&args, &api, &mut followers, &mut messages, &sender, &mut view, output).await;
    if let View::Screen(screen) = view {
        let last = screen.close();
        output.text(&last)?;
        for follower in &followers {
            if let Some((end, assessment)) = follower.ended() {
                output.line(&lines::end(end, assessment, &follower.label()))?;
            }
        }
    }
    if let Some(github) = GitHub::find(&args, &|name| std::env::var(name).ok()) {
        let ends: Vec<_> = followers.iter().filter_map(Follower::ended).collect();
        github.report(&ends, output)?;
    }
    ended
}

async fn follow(
    args: &StatusArgs,
    api: &Arc<Api>,
    followers: &mut [Follower],
    messages: &mut mpsc::Receiver<Message>,
    sender: &mpsc::Sender<Message>,
    view: &mut View,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    let started = Instant::now();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            Some(message) = messages.recv() => {
                receive(followers, message, api, sender).await?;
                while let Ok(message) = messages.try_recv() {
                    receive(followers, message, api, sender).await?;
                }
                // Assessed together with those that follow soon.
                continue;
            }
            _ = ticks.tick() => {}
            quit = screen::quit(view) => {
                quit?;
                return Ok(Exit::Interrupted);
            }
        }
        let timed_out = !args.timeout.is_zero() && started.elapsed() >= args.timeout;
        let mut has_failed = false;
        for follower in followers.iter_mut().filter(|follower| follower.ended().is_none()) {
            if !follower.is_due() && !timed_out {
                continue;
            }
            if !follower.assess(api, sender, !args.watch && !timed_out)? {
                if timed_out {
                    let what = format!("cannot read {} within --timeout", follower.key.described());
                    let message = follower.trouble().unwrap_or("no answer").to_owned();
                    return Err(crate::api::ApiError::Unanswered { what, message }.into());
                }
                continue;
            }
            follower.judge(args, timed_out);
            has_failed |= matches!(follower.ended(), Some((End::Failed(_), _)));
        }
        show(args, followers, view, output)?;
        let is_over = |follower: &Follower| follower.ended().is_some();
        if followers.iter().all(is_over) || has_failed {
            let exits = followers.iter().filter_map(|follower| Some(follower.ended()?.0.exit()));
            return Ok(exits.fold(Exit::Success, Exit::worse));
        }
    }
}

async fn receive(
    followers: &mut [Follower],
    message: Message,
    api: &Arc<Api>,
    sender: &mpsc::Sender<Message>,
) -> Result<(), CommandError> {
    let Some(follower) = followers.get_mut(message.follower) else { return Ok(()) };
    if follower.receive(message, api, sender)? {
        return Ok(());
    }
    Err(follower.key.missing(api).await)
}

fn show(
    args: &StatusArgs,
    followers: &mut [Follower],
    view: &mut View,
    output: &mut Output,
) -> Result<(), CommandError> {
    let is_news: Vec<bool> = followers.iter_mut().map(Follower::take_news).collect();
    match view {
        View::Lines(all) => {
            for ((lines, follower), is_news) in all.iter_mut().zip(followers).zip(is_news) {
                if let Some(trouble) = follower.new_trouble() {
                    output.note(&format!("note: {trouble}; the watch tries again"));
                }
                if !is_news {
                    continue;
                }
                note_unreadable(follower, output);
                let Some(assessment) = follower.assessment() else { continue };
                let is_first = lines.is_first();
                if !args.watch {
                    if is_first {
                        output.text(&tree::text(assessment, output.style))?;
                    }
                    continue;
                }
                for line in lines.update(assessment, follower.ended().map(|(end, _)| end), &follower.label())
                {
                    output.line(&line)?;
                }
            }
        }
        View::Json(all) => {
            for ((stream, follower), is_news) in all.iter_mut().zip(followers).zip(is_news) {
                if let Some(trouble) = follower.new_trouble() {
                    output.note(&format!("note: {trouble}; the watch tries again"));
                }
                if !is_news {
                    continue;
                }
                note_unreadable(follower, output);
                let Some(assessment) = follower.assessment() else { continue };
                for event in stream.update(assessment, follower.ended().map(|(end, _)| end)) {
                    output.line(&json_line(&event))?;
                }
            }
        }
        View::Screen(screen) => screen.draw(followers, is_news.contains(&true))?,
    }
    Ok(())
}

/// Says what could not be read before anything that is known without it.
fn note_unreadable(follower: &mut Follower, output: &mut Output) {
    let consequence = match follower.assessment() {
        Some(assessment) if assessment.is_partial => "no reasons can be told, only what the status says",
        _ => "the reasons are incomplete",
    };
    for missing in follower.new_unreadable() {
        output.note(&format!("note: {missing}: {consequence}"));
    }
}

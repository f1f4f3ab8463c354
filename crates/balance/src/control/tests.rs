use undo::Folder;

use super::*;

fn instance(folder: &tempfile::TempDir) -> Instance {
    let journals = Folder::at(folder.path().join("state")).unwrap();
    let instance = Instance::named("test", &journals).unwrap();
    fs::create_dir_all(&instance.folder).unwrap();
    fs::write(instance.lock_path(), "4711\n").unwrap();
    instance
}

#[test]
fn slow_clients_keep_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let instance = instance(&folder);
    let done = Answer::Done { what: "it".to_owned() };
    let answers = done.clone();
    listen(&instance, move |asked| asked.answer.send(answers.clone()).is_ok()).unwrap();
    let _slow: Vec<UnixStream> =
        (0..MAX_CLIENTS - 1).map(|_| UnixStream::connect(instance.control()).unwrap()).collect();
    let answer = ask(&instance, &Request::Reload).unwrap();
    assert_eq!(answer, done);
}

#[test]
fn what_nobody_waits_for_is_not_done() {
    let folder = tempfile::tempdir().unwrap();
    let instance = instance(&folder);
    let (sender, receiver) = mpsc::channel();
    listen(&instance, move |asked| sender.send(asked).is_ok()).unwrap();
    let refused =
        ask_within(&instance, &Request::Reload, Duration::from_millis(100)).unwrap_err().to_string();
    assert!(refused.contains("(process 4711) has not answered within"), "{refused}");
    assert!(receiver.recv().unwrap().is_given_up());

    // A balancer that ends or gives up sends no answer. The error must still explain this.
    let ends = instance.clone();
    let asking = thread::spawn(move || ask(&ends, &Request::Reload).unwrap_err().to_string());
    drop(receiver.recv().unwrap());
    let refused = asking.join().unwrap();
    assert!(refused.contains("(process 4711) closed the connection without an answer"), "{refused}");

    // A client that waits gets the answer and reads it before the process ends.
    let asking = thread::spawn(move || ask(&instance, &Request::Reload).unwrap());
    let asked = receiver.recv().unwrap();
    assert!(!asked.is_given_up());
    let client = asked.client.as_ref().map(|client| client.try_clone().unwrap());
    let last = Answer::Done { what: "last".to_owned() };
    asked.answer_at_the_end(last.clone());
    let read = PendingRequest::new(Request::Reload, mpsc::channel().0, client);
    assert!(read.is_given_up(), "the client has hung up");
    assert_eq!(asking.join().unwrap(), last);
}

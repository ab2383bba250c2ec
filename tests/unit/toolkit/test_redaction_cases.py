"""What has to be redacted, form by form and program by program, and what must stay."""

from __future__ import annotations

import json
import time

import pytest

from harness.toolkit.redaction.commands import PROGRAMS as TABLE
from harness.toolkit.redaction.redactor import MARK, PatternRedactor
from harness.toolkit.redaction.stream import StreamRedactor

PLAIN = PatternRedactor()
SECRETS = ("canary7", "Zx9-" + "kQ7vT2mWp4")

NAMED = [
    "login failed, password: {}, user: x",
    "{password: {}, user: x}",
    "token: {} (old)",
    "password: {}; next",
    "api_key: {} | x",
    "password: {} > file",
    "password: {} and more words",
    "(password: {})",
    "[secret: {}]",
    "`password: {}`",
    "password: {}.",
    "Password for bob: x, new password: {} set",
    "password: {}\tuser: bob",
    "passwd={}&user=x",
    "user=bob password={} host=db",
    "password={};host=db",
    "pass = {}",
    "pass={} user=x",
    '{"pass": "{}"}',
    "pwd: {}",
    "psk={}",
    '  psk="{}"',
    "wpa_passphrase={}",
    "PresharedKey = {}",
    "bindpw: {}",
    "secret_id: {}",
    "userPassword:: {}",
    "password := {}",
    'password => "{}",',
    "'password' => '{}'",
    "spring.datasource.password={}",
    "ansible_become_pass={}",
    "REDISCLI_AUTH={} redis-cli",
    "RESTIC_PASSWORD={} restic backup /",
    "BORG_PASSPHRASE='{}' borg create",
    "PGPASSWORD={} psql -h db",
    "SSHPASS={} sshpass -e ssh h",
    "export VAULT_TOKEN={}; vault status",
    "MYSQL_PWD={}",
    "//registry.npmjs.org/:_authToken={}",
    "access_token: {}, expires: 3600",
    "refresh-token: {}",
    "echo 'password: {}' > there",
    'echo "password: {}" | tee file',
    "x --token={} -v",
    "x --auth-token {} -v",
    "x --passphrase {} -v",
    "x --account-key {} -v",
    '["tool", "--password", "{}"]',
    "['tool', '--api-key', '{}']",
    "<password>{}</password>",
    '<db:password encrypted="false">{}</db:password>',
    "<apiKey>{}</apiKey>",
    '<add key="ApiKey" value="{}"/>',
    '{"name": "DB_PASSWORD", "value": "{}"}',
    "- name: DB_PASSWORD\n  value: {}\n- name: X\n  value: y",
    '{\n  "name": "DB_PASSWORD",\n  "value": "{}"\n}',
    "password: |\n  {}\nuser: x",
    "password: >-\n  {}\nuser: x",
    "ALTER USER bob WITH PASSWORD '{}';",
    "CREATE USER bob IDENTIFIED BY '{}'",
    "requirepass {}",
    "set -x DB_PASSWORD {}",
    "setx API_TOKEN {}",
    "ENV DB_PASSWORD {}",
    "git config user.password {}",
    "npm config set //registry.npmjs.org/:_authToken {}",
]
HEADERS = [
    "curl -H 'X-Api-Key: {}' https://x",
    'curl -H "X-Api-Key: {}" https://x',
    "curl --header 'apikey: {}' https://x",
    "curl -H 'PRIVATE-TOKEN: {}' https://gitlab/x",
    "curl -H 'X-Vault-Token: {}' https://vault/x",
    "curl -H X-Auth-Token:{} https://x",
    "curl -H 'X-Consul-Token: {}' https://x",
    "curl -H 'Ocp-Apim-Subscription-Key: {}' https://x",
    "Authorization: Bearer {}",
    "Authorization: {}",
    "Authorization: SSWS {}",
    "Authorization: GenieKey {}",
    "Authorization: NewScheme {}",
    "> authorization: token {}",
    "curl -H 'Authorization: Splunk {}' -k https://x",
    "Proxy-Authorization: Basic {}",
    '"Authorization": "Api-Key {}", "x": 1',
    'http GET https://x "Authorization: Bearer {}"',
    "Cookie: session={}",
    "Cookie: theme=dark; session={}; lang=en",
    "curl -H 'Cookie: sid={}' https://x",
    "Set-Cookie: sid={}; Path=/; HttpOnly",
    "< set-cookie: sid={}; Max-Age=3600",
    '{"set-cookie": ["sid={}; Path=/"]}',
    "curl -b sid={} https://x",
    "curl --cookie 'a=b; sid={}' https://x",
]
PARAMETERS = [
    'Authorization: Digest username="bob", realm="r", response="{}"',
    "Authorization: AWS4-HMAC-SHA256 Credential=x/20250101/r/s3/aws4_request, SignedHeaders=host, Signature={}",
    'Authorization: Hawk id="x", ts="1", mac="{}"',
    'Authorization: OAuth oauth_token="{}", oauth_nonce="x"',
]
URLS = [
    "https://{}@github.com/x/y.git",
    "git clone https://{}:x-oauth-basic@github.com/x",
    "git clone https://{}:@github.com/x",
    "https://oauth2:{}@gitlab.com/x",
    "psql postgresql://bob:{}@db/x?sslmode=require",
    "psql 'host=db user=bob password={}'",
    "redis://:{}@cache:6379/0",
    "amqp://u:{}@mq//",
    "mongodb+srv://u:{}@h/x",
    "jdbc:oracle:thin:bob/{}@db:1521/x",
    "jdbc:mysql://h/x?user=u&password={}",
    "u:{}@tcp(db:3306)/x",
    "https://x.blob.core.windows.net/c?sv=1&sig={}%3D&se=2",
    "postgres://u:a/{}@db/x",
    "Server=db;User Id=sa;Password={};Encrypt=yes",
]
PROGRAMS = [
    "docker login -u bob -p {} registry",
    "docker login -u bob -p{} registry",
    "sudo docker login --username bob --password {} r",
    "podman login -p '{}' r",
    "helm registry login r -u x -p {}",
    "openssl enc -aes-256-cbc -pass pass:{} -in x",
    "openssl rsa -passin pass:{} -in k -out o",
    "openssl pkcs12 -passout 'pass:{}' -export",
    "openssl enc -k {} -in x",
    "openssl passwd -6 {}",
    "openssl passwd -6 -salt abc {}",
    "htpasswd -b .htpasswd bob {}",
    "htpasswd -bc .htpasswd bob {}",
    "htpasswd -nb bob {}",
    "htpasswd -nbB -C 10 bob {}",
    "htpasswd -c -b file bob {}",
    "mysql -uroot -p{} db",
    "mysqldump -u root -p'{}' --all-databases",
    'sh -c "mysql -p{} db"',
    "mysqladmin -u root password {}",
    "mysql -u root --password={} db",
    "sshpass -p {} ssh -p 22 h",
    "sshpass -p'{}' scp -P 22 a h:",
    "/usr/bin/sshpass -p{} ssh h",
    "PGPASSWORD={} pg_dump x",
    "redis-cli -h x -a {} ping",
    "redis-cli --pass {} ping",
    "redis-cli CONFIG SET requirepass {}",
    "curl -u bob:{} https://x",
    "curl -ubob:{} https://x",
    "curl --proxy-user bob:{} https://x",
    "curl -E cert.pem:{} https://x",
    "curl --oauth2-bearer {} https://x",
    "curl -d password={} https://x",
    'curl -d \'{"password":"{}"}\' https://x',
    "wget --user=bob --password={} https://x",
    "wget --http-password {} https://x",
    "smbclient -U bob%{} //srv/share",
    "smbclient //srv/share {} -U bob",
    "rpcclient -U 'bob%{}' srv",
    "ldapsearch -x -D cn=admin -w {} -b dc=x",
    "ldappasswd -w {} -D x",
    "ipmitool -H h -U root -P {} power status",
    "mongo -u bob -p {} db",
    "mongodump -p '{}' --out x",
    "aws configure set aws_secret_access_key {}",
    "kubectl create secret generic x --from-literal=key={}",
    "kubectl create secret generic x --from-literal key={}",
    "kubectl create secret docker-registry x --docker-password={}",
    "helm upgrade x y --set db.password={},db.host=h",
    "az login -u bob -p {}",
    "az login --service-principal -u x -p '{}' --tenant t",
    "oc login --token={} https://x",
    "gh secret set NAME --body {}",
    "gh auth login --with-token <<< {}",
    "echo {} | gh auth login --with-token",
    "vault kv put secret/x key={}",
    "vault write auth/userpass/users/bob password={}",
    "vault login {}",
    "vault login token={}",
    "7z a -p{} x.7z dir",
    "7z x -p'{}' x.7z",
    "rar a -hp{} x.rar dir",
    "zip -r -P {} x.zip dir",
    "unzip -P {} x.zip",
    "gpg --batch --passphrase {} -c x",
    "ansible all -e ansible_password={} -m ping",
    "ansible-playbook x.yml -e 'db_password={}'",
    'ansible-playbook x.yml -e "{\\"db_password\\": \\"{}\\"}"',
    "net user bob {} /add",
    "ssh-keygen -t ed25519 -N {} -f k",
    "snmpwalk -v3 -u bob -A {} h",
    "keytool -list -keystore x -storepass {}",
    "nmcli dev wifi connect home password {}",
    "nmcli con modify home wifi-sec.psk {}",
    "rabbitmqctl add_user bob {}",
    "http -a bob:{} https://x",
    "lftp -u bob,{} h",
    "sqlcmd -S h -U sa -P {} -Q x",
    "sqlplus bob/{}@db",
    "wpa_passphrase home {}",
    "consul members -token={}",
    "useradd -p {} bob",
    "echo {} | sudo -S id",
    "echo '{}' | sudo -S -p '' id",
    "printf '%s' {} | docker login -u bob --password-stdin",
    "echo bob:{} | chpasswd",
    'echo "bob:{}" | sudo chpasswd',
    "echo {} | passwd --stdin bob",
    "passwd --stdin bob <<< '{}'",
    "echo -n {} | cryptsetup luksOpen /dev/x y",
    '["mysql", "-p{}", "db"]',
    "curl -u bob:'{}' https://x",
    'curl -u "bob:{}" https://x',
    "ansible-vault encrypt_string '{}' --name x",
    "802-11-wireless-security.psk: {}",
    "    Master-Key: {}",
    "['sshpass', '-p', '{}', 'ssh', 'h']",
    '{"command": "docker login -u bob -p {} r"}',
    "etcdctl --user root:{} get x",
    "twine upload -u x -p {} dist/*",
]
REDACTED = [*NAMED, *HEADERS, *URLS, *PROGRAMS]

ORDINARY = [
    "curl -H 'Authorization: Bearer $TOKEN' https://x",
    'curl -H "Authorization: Bearer ${TOKEN}" https://x',
    "Authorization: Bearer <token>",
    "Authorization: Bearer {{ token }}",
    "  valueFrom:\n    secretKeyRef:\n      name: db\n      key: password\n  image: x",
    '<input type="password" name="password" value="">',
    "https://unpkg.com/react@18.2.0/umd/react.js",
    "https://medium.com/@user12345/post",
    "connect(user=user, password=self._pw, token=None)",
    "login(password=get_secret(), api_key=os.environ['KEY'])",
    "PASSWORD_FILE=/run/secrets/x SECRET_NAME=db TOKEN_TTL=3600",
    "docker compose -p project up; docker ps --no-trunc",
    "ssh -p 2222 host; scp -P 2222 a host:",
    "mysqldump --single-transaction db > dump.sql",
    "Enter your password: then press Enter",
    "invalid password: try again",
    "error: wrong password: access denied",
    "password: Permission denied",
    "the token: it has expired, log in again",
    "password: must contain 8 characters, a digit",
    "secret: 3 of 5 shares",
    "token: 12 of 70",
    "tokens: 12, cost: 3",
    "def f(password: SecretStr, user: str) -> None:",
    "password: SecretStr | None = None",
    "api_key: ApiKey | None",
    "token: str | None = None",
    "fn f(password: &str, token: u64) {}",
    "secret::Foo, password::hash(x), Token::Eof",
    "if password == stored: return",
    "if (token == null || token != x) {",
    "password: config.password, user: config.user",
    "const {password, token} = req.body;",
    "x = {password: password, token: token}",
    "password: req.body.pw,",
    "credentials: 'include',",
    "password = $PASSWORD",
    "password: ${PASSWORD}, user: x",
    "password: <your password>, user: x",
    "PASS: test_login.sh",
    "bypass: 12ab34cd, compass=12ab34",
    "pass=3 fail=0 skip=1",
    "passwd: password updated successfully",
    "passwd: files systemd",
    "SecretName: default-token, Type: Opaque",
    "https://bob@example.org/x",
    "https://example.org:8080/a@b",
    "http://$HOST:$PORT/a@b",
    "https://[::1]:8080/a@b",
    "docker pull registry:5000/x@sha256:" + "a1" * 32,
    "scp bob@host:/x y",
    "docker run -p 8080:80 --name mongo mongo:7",
    "docker run --name mongo -p 27017:27017 mongo",
    "docker run -d --name mysql -p 3306:3306 mysql",
    "docker login registry",
    "docker login -u bob --password-stdin",
    "mysql -u root -p db",
    "mysql -P 3306 -h db",
    "sshpass -f file ssh -p 22 h",
    "curl -u bob https://x",
    "curl -b cookies.txt https://x",
    "curl -sS -p https://x",
    "wget -P /tmp https://x",
    "zip -r x.zip dir; cp -P a b",
    "find . | xargs -P 4 zip x.zip",
    "unzip -p x.zip file",
    "7z l x.7z",
    "openssl x509 -in cert.pem -noout",
    "openssl rsa -passin env:PASS -in k",
    "openssl enc -pass file:k -in x",
    "ldapsearch -x -s sub -b dc=x",
    "ssh-keygen -t ed25519 -f k",
    "htpasswd -c file bob",
    "net user bob",
    "net user growth was strong",
    "helm list; helm get values x",
    "az vm list -o table",
    "gh pr create --title x --body y",
    "gh issue create -b text",
    "vault kv get secret/x",
    "vault login",
    "cargo login",
    "aws configure list",
    "kubectl get secret x -o yaml",
    "git config user.name Bob",
    "set -e; set -o pipefail",
    "env | sort",
    "echo hello | sudo tee /x",
    "echo hello | passwd_check",
    "echo $PASSWORD | sudo -S id",
    "echo done | cat",
    "echo 'a|b' | grep x",
    "cat <<< hello",
    "mkpasswd --help",
    "echo root | grep -f - /etc/passwd",
    "usage: tool --password PASSWORD --token TOKEN",
    "use the --password option, or --token",
    "--password-file FILE --token-file FILE",
    "Cookie policy: we use cookies",
    "cookie: none",
    "Authorization: required",
    "Authorization: the server decides who may do it",
    "authorization = Authorization(request)",
    "basic authorization: a short guide to it",
    "- name: DB_HOST\n  value: db.example.org",
    "- name: TOKEN_TTL\n  value: 3600",
    "description: |\n  The password of the day\n  is not here",
    "<p>the password</p> <token>true</token>",
    "name: password reset\nvalue: 3",
    "UPDATE t SET x = 'password'",
    "monkey: banana, keyboard=qwerty, tokens=9",
    "psk: true, pwd: false",
    "cd /tmp && pwd; PWD=/tmp OLDPWD=/",
    "the secret of success: hard work",
    "password: [sudo] for bob",
    "zip: password incorrect--reenter",
    "sshd[12]: Failed password for root from 10.0.0.1 port 22 ssh2",
    "sudo: 3 incorrect password attempts",
    "git commit -m 'password: handle the empty case'",
    "commit a1b2c3d4 fix token: handle eof in lexer",
    "key=value&sort=desc&page=2",
    "http://x/?design=blue&resign=12345678",
    "SELECT user, password FROM users WHERE id = 1",
    "config set up",
    "http -v https://x",
    "ab -n 100 -c 10 https://x/",
    "tar -cf x.tar -p dir | rar",
    '{"auth": {"enabled": true}}',
    '{"token_type": "Bearer", "expires_in": 3600}',
    "xfreerdp /v:h /u:bob",
]


OTHERWISE = {
    "password: {}.": "password: {}",
    "Cookie: theme=dark; session={}; lang=en": "Cookie: theme={}; session={}; lang={}",
    "curl --cookie 'a=b; sid={}' https://x": "curl --cookie 'a={}' https://x",
    "https://x.blob.core.windows.net/c?sv=1&sig={}%3D&se=2": "https://x.blob.core.windows.net/c?sv=1&sig={}&se=2",
    "postgres://u:a/{}@db/x": "postgres://u:{}@db/x",
    "echo bob:{} | chpasswd": "echo {} | chpasswd",
    'echo "bob:{}" | sudo chpasswd': 'echo "{}" | sudo chpasswd',
}
"""Where more is redacted than the secret."""


def test_a_secret_is_redacted_and_nothing_else() -> None:
    for text in REDACTED:
        for secret in SECRETS:
            assert PLAIN.text(text.replace("{}", secret)) == OTHERWISE.get(text, text).replace("{}", MARK)


FAR = "x" * 6000
BEYOND = [
    f"mysql --comment {FAR} -p{{}} db",
    f"mysql --comment '{FAR}' -p{{}} db",
    f"echo {FAR} {{}} | sudo -S id",
    f"echo '{FAR}{{}}' | sudo -S id",
    f"echo {{}} | sudo -u {FAR[:900]} -S id",
    f"echo {{}} | docker login -u {FAR[:3000]} --password-stdin",
    f"ls; echo {FAR}{{}} | chpasswd",
    f"docker login -u {FAR} --password-stdin <<< '{{}}'",
    f"docker login --password-stdin -u {FAR} <<E\n{{}}\nE",
]


def test_a_secret_is_redacted_however_long_the_command_is() -> None:
    for text in BEYOND:
        for secret in SECRETS:
            assert secret not in PLAIN.text(text.format(secret)), text[:40]


def test_a_secret_is_redacted_in_json_that_holds_the_text() -> None:
    for text in [*REDACTED, *PARAMETERS]:
        shown = json.loads(PLAIN.text(json.dumps({"a": text.replace("{}", SECRETS[1])})))["a"]
        assert SECRETS[1] not in shown


def test_a_stream_shows_no_part_of_a_secret_wherever_it_is_cut() -> None:
    for text in [*REDACTED, *PARAMETERS]:
        whole = text.replace("{}", SECRETS[1]) + "\n"
        clean = PLAIN.text(whole)
        for size in (1, 7, 13):
            stream = StreamRedactor(PLAIN)
            shown = "".join(stream.feed(whole[at : at + size]) for at in range(0, len(whole), size))
            assert shown + stream.flush() == clean


@pytest.mark.parametrize("command", ["sudo -S id", "docker login -u bob --password-stdin r", "sudo chpasswd"])
def test_a_here_document_for_a_program_that_asks_is_redacted(command: str) -> None:
    assert PLAIN.text(f"{command} <<EOF\ncanary7\nEOF\nls") == f"{command} <<EOF\n{MARK}\nEOF\nls"
    assert PLAIN.text("cat <<EOF\ncanary7\nEOF\n") == "cat <<EOF\ncanary7\nEOF\n"


@pytest.mark.parametrize("text", PARAMETERS)
def test_the_parameters_of_a_scheme_are_redacted(text: str) -> None:
    assert "canary7" not in PLAIN.text(text.replace("{}", "canary7"))
    assert PLAIN.text(text.replace("{}", "canary7")).startswith("Authorization: ")


def test_ordinary_text_stays() -> None:
    for text in ORDINARY:
        assert PLAIN.text(text) == text


MB = 1 << 20
ADVERSARIAL = {
    **{program: (f"{program} -p x -P y -u a:b -U a%b -a c " * (MB // 30))[:MB] for program in list(TABLE)[::7]},
    "pipes": "|" * MB,
    "readers": "| sudo a " * (MB // 9),
    "echo": "echo x | sudo -S " * (MB // 17),
    "here document": "passwd <<E\nx\n" * (MB // 14),
    "here": "passwd <<<x " * (MB // 12),
    "config": "config set x " * (MB // 13),
    "cookie": "cookie: " + "a=b; " * (MB // 5),
    "scheme": "authorization: x y " * (MB // 19),
    "digest": "authorization: digest " + 'a="b", ' * (MB // 7),
    "user": "https://a" * (MB // 9),
    "long user": "https://" + "a" * MB,
    "go": "a:b" * (MB // 3) + "@tcp(",
    "element": "</" + "<password " * (MB // 10),
    "pair": "value" + "name: " * (MB // 6),
    "block": ": |password: |" + " " * MB,
    "sql": "password 'a" * (MB // 11),
    "listed": '"--password", ' * (MB // 14),
    "values": "password: a, " * (MB // 13),
    "echoes": "echo x " * (MB // 7) + "| sudo -S id",
    "echoes and pipes": ("echo x " * 200 + "| sudo -S id ") * (MB // 1412),
    "long readers": ("| a " + "b " * 1900) * (MB // 3804),
    "here and far": ("passwd " + "x " * 500 + "<<<x ") * (MB // 1013),
    "sudoes": "| " + "sudo a " * (MB // 7),
    "quotes": "mysql " + "'\"" * (MB // 2),
    "backslashes": "mysql " + "\\" * MB,
}


@pytest.mark.usefixtures("needs_time")
def test_a_megabyte_meant_to_be_slow_takes_linear_time() -> None:
    """One that is not linear takes minutes."""
    for text in ADVERSARIAL.values():
        before = time.process_time()
        PLAIN.text(text)
        assert time.process_time() - before < 5.0

"""The action that sends an email."""

from __future__ import annotations

import json
import smtplib
import ssl
from email.message import EmailMessage
from typing import ClassVar

from vinedresser.rules.actions.base import ActionContext, ActionResult, retry
from vinedresser.rules.actions.message import headline, text
from vinedresser.rules.actions.settings import EmailSettings

# Timeout in seconds for each reply of the server.
_TIMEOUT = 10.0


class EmailAction:
    """Sends a finding and its run by mail, as text and as JSON.

    Args:
        settings: recipients and server.
    """

    name: ClassVar[str] = "email"

    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        message = self._message(context)
        return retry(lambda: self._send(message), self._settings.patience, context.giving_up)

    def _message(self, context: ActionContext) -> EmailMessage:
        settings, content = self._settings, context.document
        message = EmailMessage()
        message["From"] = settings.sender
        message["To"] = ", ".join(settings.to)
        # Headers are single lines.
        message["Subject"] = headline(content)[:200]
        # Mail programs show a message that arrives twice only once.
        message["Message-ID"] = f"<{context.id}@vinedresser.invalid>"
        message.set_content(text(content))
        as_json = json.dumps(content, allow_nan=False, indent=1).encode()
        message.add_attachment(
            as_json, maintype="application", subtype="json", filename="message.json"
        )
        return message

    def _send(self, message: EmailMessage) -> ActionResult:
        settings = self._settings
        where = f"{settings.host}:{settings.port}"
        try:
            with smtplib.SMTP(settings.host, settings.port, timeout=_TIMEOUT) as server:
                if settings.starttls:
                    server.starttls(context=ssl.create_default_context())
                if settings.user:
                    server.login(settings.user, settings.password())
                left_out = server.send_message(message)
        except smtplib.SMTPResponseException as error:
            # RFC 5321, section 4.2.1: 4xx may succeed later, 5xx never.
            later = error.smtp_code < 500
            return ActionResult(
                "failed" if later else "refused", f"{where} replied {error.smtp_code}"
            )
        except smtplib.SMTPRecipientsRefused as error:
            later = any(code < 500 for code, _ in error.recipients.values())
            return ActionResult(
                "failed" if later else "refused", f"{where} accepts no mail for {settings.to}"
            )
        except (smtplib.SMTPNotSupportedError, ssl.SSLCertVerificationError) as error:
            return ActionResult("refused", f"{where}: {error}")
        except (OSError, smtplib.SMTPException) as error:
            return ActionResult("failed", f"{where}: {type(error).__name__}: {error}")
        if left_out:
            return ActionResult("done", f"{where} accepted it, but not for {', '.join(left_out)}")
        return ActionResult("done", f"{where} accepted it for {', '.join(settings.to)}")
